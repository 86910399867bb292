"""HTTP as the service speaks it: connections, bodies, who asks, what is refused and how errors are told.

- Connections: `listening` takes the addresses, `connections` end, `entrance` lets requests in by share.
- Who asks: `admission`, and `identities` for tokens of an OpenID Connect issuer.
- Requests: `bodies` of bounded length, `strictness` of what they say, `conditional` ones, and those for a file's head.
- Answers: `problems` tells errors, `contract` makes `/openapi.json`.
"""
