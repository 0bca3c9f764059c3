"""A real Apache RocketMQ opens our stores, and we open its: `make interop`."""
