"""The HTTP service: any language, any store. Thin: every handler parses, calls, renders.

guard.py    ids, access log, limits of bodies and of requests under way
endpoint.py who calls (auth), with what right, for which tenant; then the handler
routes.py   THE TABLE of routes: path, right, shapes, handler
api/        the handlers, one file per part of the table
wire.py     the shapes that go in and out
problems.py an error of ours -> a status and a body
"""
