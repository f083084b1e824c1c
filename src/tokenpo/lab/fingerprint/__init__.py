"""What a method's push on a token depends on: curves over each fact of the token, pictures of them, an explorer."""
