"""Which models stand in for another one."""

from lockpin_core.substitutes import parts, substitutes

INSTEAD = {
    "openai/gpt-5.5": ("openai/gpt-5.4-mini", "groq/llama-4"),
    "openai/*": ("openai/gpt-5.4-mini", "openai/gpt-5.5", "openrouter/openai/gpt-5.5"),
    "anthropic/claude-sonnet-5-5": ("anthropic/claude-haiku-4-5",),
}


def test_what_is_said_of_a_model_comes_before_what_is_said_of_its_provider_each_once():
    assert substitutes(INSTEAD, "openai", "gpt-5.5") == (
        "openai/gpt-5.4-mini", "groq/llama-4", "openrouter/openai/gpt-5.5",
    )  # fmt: skip


def test_a_model_of_which_nothing_is_said_has_those_of_its_provider_without_itself():
    assert substitutes(INSTEAD, "openai", "gpt-5.4-mini") == ("openai/gpt-5.5", "openrouter/openai/gpt-5.5")
    assert substitutes(INSTEAD, "mistral", "gpt-5.5") == ()


def test_a_model_is_known_by_each_of_its_names():
    names = ("claude-sonnet-latest", "claude-sonnet-5-5")

    assert substitutes(INSTEAD, "anthropic", *names) == ("anthropic/claude-haiku-4-5",)
    assert substitutes({"a/*": ("a/x", "a/y")}, "a", "x", "y") == ()


def test_a_name_is_parted_at_its_first_slash():
    assert parts("openrouter/openai/gpt-5.5") == ("openrouter", "openai/gpt-5.5")
