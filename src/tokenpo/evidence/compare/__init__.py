"""Runs one recipe with several methods and seeds, and says what the seeds tell apart.

`plan` which runs, `runs` their processes, `measures` the numbers of a run, `paired` what the seeds tell apart; `result`
gathers them for `table`, `page` and compare.json. Importing this package imports nothing heavy.
"""
