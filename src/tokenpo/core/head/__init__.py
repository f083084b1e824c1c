"""The output head: log-probabilities, entropies and the loss from hidden states, forward and backward in chunks."""
