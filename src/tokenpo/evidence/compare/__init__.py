"""Runs one recipe with several methods and seeds, or takes runs that exist, and says what the seeds tell apart.

`plan` which runs, `runs` their processes, `existing` those of any engine; `subject` what either is to a reader.
`measures` the numbers of a run, `paired` the tests of their differences, `verdict` what these come to in words;
`result` gathers them for `table`, `page` and compare.json. Importing this package imports nothing heavy.
"""
