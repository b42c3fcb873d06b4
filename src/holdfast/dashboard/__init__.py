"""Pages for people, over `operate`; mounted by the service."""
