"""What long work saves on its way, to go on from."""
