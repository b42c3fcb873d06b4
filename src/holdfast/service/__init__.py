"""The HTTP service: for any language, over any store. Every handler only parses, calls and renders.

guard.py    request ids, access log, limits of bodies and of concurrent requests
endpoint.py authentication, rights and tenant of a call; then the handler
routes.py   THE TABLE of routes: path, right, shapes, handler
api/        the handlers, one file per part of the table
wire.py     the shapes that go in and out
problems.py maps errors to a status and a body
"""
