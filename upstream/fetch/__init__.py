"""Low-level groups: clients that fetch by offsets of their own, who owns which queue, and what they ack (R79-R89).

Here stands no wire format and no waiting: `proxy.services.fetch_service` has both.
"""
