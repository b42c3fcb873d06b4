"""What stands between the dispatcher and a store and maps the bytes that jobs carry."""
