"""Who may do what: principals, rules, tokens, and whose a producer's numbers are (docs/security.md).

Pure but for one file of the store; it knows nothing of calls and services. What a denial is answered with is in
`proxy.services.access`.
"""
