"""The dashboard: pages, figures and the REST API, one FastAPI application."""
