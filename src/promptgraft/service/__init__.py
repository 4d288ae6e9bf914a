"""The service: jobs, their database and the server over them."""
