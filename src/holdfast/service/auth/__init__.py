"""Authentication: modes none, keys and jwt. Each turns a request into a `rights.Caller`.

settings.py the checked options; choice.py creates the mode from them
nobody.py   mode none: every process on this machine
keys.py     mode keys: static keys, known by their hashes
tokens.py   mode jwt: signed tokens; jwks.py has the keys, claims.py reads tenant and rights
bearer.py   reads the token from a request
"""
