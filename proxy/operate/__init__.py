"""What people see and change of a running node, subject by subject, over the admin port and the command line.

Records and steps; HTTP is `proxy.admin`'s, a terminal `proxy.cli`'s.
"""
