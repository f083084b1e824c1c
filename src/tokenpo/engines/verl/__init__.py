"""verl 0.9: our objectives in its V1 trainer on Ray.

plugin.py is loaded by every process of verl and registers the trainer; trainer.py computes phase one in the driver and
hands phase two, loss.py, to the workers.
"""
