"""The sections of a configuration, each with its models; `conf.models` puts the whole together of them."""
