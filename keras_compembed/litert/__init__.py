"""Tables and graphs in LiteRT's formats and ops."""
