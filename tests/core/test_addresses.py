import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.addresses import canonical_host, canonical_path, hides, is_below, is_plain_path, normal

SPELLED = [
    *("api.openai.com", "API.OpenAI.com", "api.openai.com.", "api.openai.com...", "api。openai。com"),
    *("api.openai.com。", "api.openai.com．", "api.openai.com｡", "api｡openai．com。．｡.", "API．OPENAI．COM．"),
    *(" api.openai.com", "api.openai.com. ", "\tapi.openai.com\r\n", ".api.openai.com"),
    *("ａｐｉ.openai.com", "api.open\u00adai.com", "api.openai.com\u2024", "[api.openai.com]"),
]


def test_canonical_forms():
    assert canonical_path("/V1//x/../Chat%2Fcompletions/?a=b") == "/v1/chat/completions"
    assert canonical_path("/") == "/"
    assert canonical_host("Bücher.example.") == "xn--bcher-kva.example"
    assert canonical_host("A" * 70 + ".com") == "a" * 70 + ".com"


@pytest.mark.parametrize("spelled", SPELLED)
def test_every_spelling_of_a_host_has_one_canonical_form(spelled):
    assert canonical_host(spelled) == "api.openai.com"


@pytest.mark.parametrize(
    ("spelled", "address"),
    [("[::1]", "::1"), ("0:0:0:0:0:0:0:1", "::1"), ("[2001:DB8::0:1]", "2001:db8::1"), ("[::1", "::1"), ("::x", "::x")],
)
def test_an_address_has_its_shortest_form(spelled, address):
    assert canonical_host(spelled) == address


@pytest.mark.parametrize(
    "odd", ["", ".", "。", "[]", " ", "\ud800", "\x00", "a\u2028b", "xn--\udcff", "a" * 10_000, "É" * 300]
)
def test_no_host_is_too_odd_for_a_canonical_form(odd):
    assert isinstance(canonical_host(odd), str)


@given(st.text(max_size=40))
def test_a_canonical_host_stays_as_it_is_and_any_case_and_end_gives_it(host):
    plain = canonical_host(host)

    assert canonical_host(plain) == plain
    assert canonical_host(f" {host}。. ") == plain


def test_path_keeps_its_case_where_a_name_in_it_is_read():
    assert normal("//v1/v1/Models%2F./Gemini-4/?key=K#x") == "/v1/Models/Gemini-4"


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("/v1/models?a=b", True),
        ("/v1/models/", False),
        ("/v1//models", False),
        ("/v1/./models", False),
        ("/v1/mod%65ls", False),
        ("/v1/models;x", False),
        ("/v1\\models", False),
    ],
)
def test_plain_path_reads_the_same_for_everybody(raw: str, plain: bool):
    assert is_plain_path(raw) is plain


def test_folder_holds_itself_and_what_lies_below_it():
    assert is_below("/client/v4/accounts/7/ai", ["/client/v4/accounts/*/ai"])
    assert is_below("/client/v4/accounts/7/ai/run/x", ["/client/v4/accounts/*/ai/"])
    assert not is_below("/client/v4/accounts/7/aim", ["/client/v4/accounts/*/ai"])
    assert not is_below("/client/v4/accounts", ["/client/v4/accounts/*/ai"])


def test_folder_that_is_spelled_out_on_the_way_elsewhere_is_hidden_there():
    assert hides("/client//v4/accounts/7/AI/../zones", ["/client/v4/accounts/*/ai"])
    for coded in ("/client/v4/accounts/7/%61i", "%252fclient/v4/accounts/7/ai", "\\client/v4/accounts/7/a%2569"):
        assert hides(f"{coded}/../../../../../x", ["/client/v4/accounts/*/ai"])
    assert not hides("/client/v4/zones?x=/client/v4/accounts/7/ai", ["/client/v4/accounts/*/ai"])
