"""What the broker needs, in the words of those who make it without the operator. Pure."""
