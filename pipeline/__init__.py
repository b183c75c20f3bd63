"""What happens to text and scores: pure functions over Arrow tables."""
