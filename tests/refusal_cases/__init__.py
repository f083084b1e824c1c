"""What each engine cannot honour, as cases: what is asked, how a user asks it, what the sentence must name.

tools/site/refusals.py writes docs/refusals.md from them. `check_case` holds a case to its sentence, `check_sites`
every place of the source that refuses to a case, `check_page` the page to what was said.
"""

from .case import Answers, Case, Said, said
from .checks import check_case, check_page, check_sites
from .page import section

__all__ = ["Answers", "Case", "Said", "check_case", "check_page", "check_sites", "said", "section"]
