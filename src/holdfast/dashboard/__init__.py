"""The dashboard: web pages over `operate`, mounted by the service."""
