"""The second prompt of drafts, and engines that do not sample them."""

import pytest

import tokenpo
from tokenpo.base.errors import TokenPOError, Unsupported
from tokenpo.core.negotiation import negotiate
from tokenpo.methods.contrib.credit import Drafts


def test_the_second_prompt_of_text_and_of_messages() -> None:
    """What a draft says is not read as a template; the last message alone changes, and the first prompt stays."""
    drafts = Drafts(2, "{prompt}|{draft}|{prompt}")
    assert drafts.prompt("a{draft}", "b{prompt}") == "a{draft}|b{prompt}|a{draft}"
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "a", "name": "n"}]
    assert drafts.prompt(chat, "b") == [chat[0], {"role": "user", "content": "a|b|a", "name": "n"}]
    assert chat[1]["content"] == "a"
    assert Drafts().prompt("1+1=", "3").startswith("1+1=\n\nA draft of an answer:\n3\n")


def test_a_template_without_the_draft_is_refused() -> None:
    with pytest.raises(TokenPOError, match=r"template '\{prompt\}' names no \{draft\}"):
        tokenpo.method("igrpo", template="{prompt}")


def test_engines_without_drafts_refuse() -> None:
    with pytest.raises(
        Unsupported, match=r"igrpo needs drafts, which here does not provide .*: train with the embedded"
    ):
        negotiate(tokenpo.method("igrpo"), engine="here")
