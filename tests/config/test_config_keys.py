import pytest

from lockpin_core.config_keys import read_keys
from lockpin_core.config_yaml import read
from lockpin_core.errors import ConfigError


def keys(text):
    return read_keys(read(f"keys: {text}\n", "lockpin.yaml", lambda *_: None).entries["keys"])


def test_each_provider_has_the_name_of_a_variable():
    assert keys("{provider_env: {openai: OPENAI_API_KEY, anthropic: _A1}}") == {
        "openai": "OPENAI_API_KEY",
        "anthropic": "_A1",
    }


@pytest.mark.parametrize("text", ["", "{}", "null", "{provider_env: {}}", "{provider_env: }"])
def test_none_is_needed(text):
    assert keys(text) == {}


def test_spelling_of_other_programs_is_read_too():
    assert keys("{providerEnv: {openai: KEY}}") == {"openai": "KEY"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a]", "lockpin.yaml:1: keys is a list; a mapping of provider_env is allowed"),
        ("{env: {}}", "lockpin.yaml:1: keys.env is a mapping, but there is no such key; allowed are provider_env"),
        ("{provider_env: OPENAI_API_KEY}", 'keys.provider_env is "OPENAI_API_KEY"; a mapping is allowed'),
        ("{provider_env: {openai: }}", "keys.provider_env.openai is null; a text is allowed"),
        ("{provider_env: {openai: $KEY}}", "such as OPENAI_API_KEY, is allowed; never a key"),
        ("{provider_env: {openai: 1KEY}}", "the name of a variable of the environment"),
    ],
)
def test_what_is_no_name_of_a_variable_is_one_line(text, said):
    with pytest.raises(ConfigError) as error:
        keys(text)

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_key_that_stands_where_its_variable_should_is_not_repeated():
    with pytest.raises(ConfigError) as error:
        keys("{provider_env: {openai: sk-proj-3kQz9hV2mXw8}}")

    assert "3kQz9hV2mXw8" not in str(error.value)
    assert "never a key" in str(error.value)
