"""Low-level groups: clients that fetch by offsets of their own, who owns which queue, and what they ack (R79-R89).

Wire format and waiting are elsewhere: `proxy.services.fetch_service` has both.
"""
