"""Who calls: modes none, keys and jwt. Each turns a request into a `rights.Caller`.

settings.py what was chosen, checked; choice.py makes the mode of it
nobody.py   mode none: anybody on this machine
keys.py     mode keys: static keys, known by their hashes
tokens.py   mode jwt: signed tokens; jwks.py has the keys, claims.py reads what they grant
bearer.py   where a token stands in a request
"""
