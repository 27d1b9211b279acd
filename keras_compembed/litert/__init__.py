"""Tables and graphs as LiteRT has them: what files hold and what runs."""
