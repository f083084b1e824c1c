"""What a run or a method is worth: evaluation, comparison, explanation, reports."""
