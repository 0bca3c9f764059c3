"""The codec by names: any struct of the interface definitions to a dict and back, for cold methods and tests."""
