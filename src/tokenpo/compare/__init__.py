"""Runs one recipe with several methods and seeds, and says what the seeds tell apart.

`plan` which runs, `runs` their processes, `measures` a number of each run, `paired` the statistics, `verdict` the words;
`table`, `page` and compare.json show them. Importing this package imports nothing heavy.
"""
