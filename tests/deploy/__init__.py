"""Files for deployments, each read by the tool that it is for."""
