"""`pyddmq demo transaction`: ten messages whose transactions stay unknown, until checks and an operator decide them."""
