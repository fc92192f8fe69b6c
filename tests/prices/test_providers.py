import itertools
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from lockpin_core.errors import PriceError
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Free, Metered, Provider, Providers, Unknown

PROVIDERS = Providers.load(shipped_dir())


def route(host: str, method: str, path: str):
    provider = PROVIDERS.for_host(host)
    assert provider is not None
    return provider.route(method, path)


SPELLED = [
    *("api.openai.com", "API.OpenAI.com", "api.openai.com.", "api.openai.com...", "api。openai。com"),
    *("api.openai.com。", "api.openai.com．", "api.openai.com｡", "api｡openai．com。．｡.", "API．OPENAI．COM．"),
    *(" api.openai.com", "api.openai.com. ", "\tapi.openai.com\r\n", ".api.openai.com"),
    *("ａｐｉ.openai.com", "api.open\u00adai.com", "api.openai.com\u2024", "[api.openai.com]"),
]


@pytest.mark.parametrize("spelled", SPELLED)
def test_a_host_is_found_in_any_spelling(spelled):
    assert PROVIDERS.for_host(spelled).name == "openai"


@pytest.mark.parametrize(
    "host",
    ["api.openai.com.evil.tld", "evil-api.openai.com", "openai.com", "api..openai.com", "", ".", "x" * 70, "a..b"],
)
def test_a_look_alike_is_nobodys(host):
    assert PROVIDERS.for_host(host) is None


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.anthropic.com", "anthropic"),
        ("eu.api.openai.com", "openai"),
        ("my-resource.openai.azure.com", "azure"),
        ("bedrock-runtime.eu-central-1.amazonaws.com", "bedrock"),
        ("bedrock-mantle.us-east-1.api.aws", "bedrock"),
        ("vpce-0a-1b.bedrock-runtime.us-west-2.vpce.amazonaws.com", "bedrock"),
        ("vpce-0a-1b.bedrock.us-west-2.vpce.amazonaws.com", "bedrock"),
        ("vpce-0a-1b.bedrock-runtime.us-gov-west-1.vpce.amazonaws.com", "bedrock_gov"),
        ("vpce-0a-1b-us-gov-east-1a.bedrock-mantle-fips.us-gov-east-1.vpce.amazonaws.com", "bedrock_gov"),
        ("vpce-0a-1b.bedrock.us-gov-west-1.vpce.amazonaws.com", "bedrock_gov"),
        ("vpce-0a-1b.bedrock-runtime.us-iso-east-1.vpce.c2s.ic.gov", "bedrock_gov"),
        ("europe-west4-aiplatform.googleapis.com", "vertex"),
        ("aiplatform.eu.rep.googleapis.com", "vertex"),
        ("claude.googleapis.com", "claude_google"),
        ("cloudcode-pa.googleapis.com", "code_assist"),
        ("api.business.githubcopilot.com", "copilot"),
        ("ws-1.cn-hangzhou.maas.aliyuncs.com", "qwen"),
    ],
)
def test_every_vendor_has_its_hosts(host, name):
    assert PROVIDERS.for_host(host).name == name


def test_of_two_patterns_the_one_that_says_more_of_the_last_labels_counts_whatever_their_order():
    wide = Provider("wide", "https://x", ("run-long-name.*.example.com", "*.run.*.example.com"))
    near = Provider("near", "https://x", ("run-*.gov-*.example.com", "*.run.gov-*.example.com"))

    for pair in ((wide, near), (near, wide)):
        providers = Providers.of(pair)
        assert providers.for_host("run-long-name.gov-1.example.com") is near
        assert providers.for_host("x.run.gov-1.example.com") is near
        assert providers.for_host("run-long-name.us-1.example.com") is wide
        assert providers.for_host("run-other.us-1.example.com") is None


# Every host that the descriptions of the vendors' wires and of their clients name.
HOSTS = {
    "openai": (
        "api.openai.com",
        *(f"{region}.api.openai.com" for region in ("us", "eu", "ae", "au", "in", "jp", "gov", "kr")),
    ),
    "chatgpt": ("chatgpt.com", "gov.chatgpt.com", "chat.openai.com", "ws.chatgpt.com", "ab.chatgpt.com"),
    "anthropic": ("api.anthropic.com",),
    "claude_aws": ("aws-external-anthropic.us-west-2.api.aws",),
    "claude_google": ("claude.googleapis.com",),
    "azure": tuple(
        f"my-resource.{service}.azure.{top}"
        for service in ("openai", "services.ai", "cognitiveservices")
        for top in ("com", "us", "cn")
    ),
    "azure_regional": (
        "eastus.api.cognitive.microsoft.com",
        "usgovvirginia.api.cognitive.microsoft.us",
        "chinanorth3.api.cognitive.azure.cn",
    ),
    "bedrock": tuple(
        f"{service}.{place}"
        for service in ("bedrock", "bedrock-runtime", "bedrock-runtime-fips", "bedrock-mantle", "bedrock-agent-runtime")
        for place in (
            *("us-east-1.amazonaws.com", "us-east-1.api.aws"),
            *("cn-north-1.amazonaws.com.cn", "cn-north-1.api.amazonwebservices.com.cn"),
            *("eusc-de-east-1.amazonaws.eu", "eusc-de-east-1.api.amazonwebservices.eu"),
        )
    ),
    "bedrock_gov": tuple(
        f"{service}.{place}"
        for service in (
            *("bedrock", "bedrock-fips", "bedrock-runtime", "bedrock-runtime-fips"),
            *("bedrock-mantle", "bedrock-mantle-fips", "bedrock-agent-runtime"),
        )
        for place in (
            *(f"us-gov-{side}-1.{end}" for side in ("east", "west") for end in ("amazonaws.com", "api.aws")),
            *("us-iso-east-1.c2s.ic.gov", "us-iso-east-1.api.aws.ic.gov"),
            *("us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1.api.aws.scloud"),
            *("eu-isoe-west-1.cloud.adc-e.uk", "eu-isoe-west-1.api.cloud-aws.adc-e.uk"),
            *("us-isof-south-1.csp.hci.ic.gov", "us-isof-south-1.api.aws.hci.ic.gov"),
        )
    ),
    "vertex": (
        *("aiplatform.googleapis.com", "us-central1-aiplatform.googleapis.com"),
        *("aiplatform.us.rep.googleapis.com", "aiplatform.eu.rep.googleapis.com"),
    ),
    "gemini": ("generativelanguage.googleapis.com",),
    "code_assist": ("cloudcode-pa.googleapis.com",),
    "openrouter": ("openrouter.ai", "eu.openrouter.ai", "us.openrouter.ai"),
    "xai": ("api.x.ai", "us-east-1.api.x.ai", "management-api.x.ai"),
    "deepseek": ("api.deepseek.com",),
    "mistral": ("api.mistral.ai", "api.us.mistral.ai", "codestral.mistral.ai"),
    "groq": ("api.groq.com",),
    "together": ("api.together.ai", "api.together.xyz"),
    "fireworks": ("api.fireworks.ai",),
    "cerebras": ("api.cerebras.ai",),
    "moonshot": ("api.moonshot.ai", "api.moonshot.cn"),
    "kimi": ("api.kimi.com",),
    "zai": ("api.z.ai", "open.bigmodel.cn"),
    "qwen": (
        *("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
        "workspace.ap-southeast-1.maas.aliyuncs.com",
    ),
    "meta": ("api.meta.ai", "api.llama.com"),
    "perplexity": ("api.perplexity.ai",),
    "copilot": (
        "api.githubcopilot.com",
        *(f"api.{plan}.githubcopilot.com" for plan in ("individual", "business", "enterprise")),
    ),
    "github_models": ("models.github.ai",),
    "cloudflare": ("api.cloudflare.com",),
    "cloudflare_gateway": ("gateway.ai.cloudflare.com",),
    "huggingface": ("router.huggingface.co",),
    "vercel": ("ai-gateway.vercel.sh",),
}
# Web sites, registries and telemetry that clients also call: nothing there runs a model, so they stay tunnels.
NOBODYS = (
    *("downloads.claude.ai", "claude.ai", "api.github.com", "github.com", "raw.githubusercontent.com"),
    *("play.googleapis.com", "models.opencode.ai", "bedrock-logs.s3.amazonaws.com"),
)


@pytest.mark.parametrize(("name", "host"), [(name, host) for name, hosts in HOSTS.items() for host in hosts])
def test_every_host_that_a_vendor_is_known_by_is_in_the_table(name, host):
    assert getattr(PROVIDERS.for_host(host), "name", None) == name


def test_every_vendor_is_in_the_list_of_hosts():
    assert {provider.name for provider in PROVIDERS.all()} == HOSTS.keys()


@pytest.mark.parametrize("host", NOBODYS)
def test_hosts_that_run_no_model_are_nobodys(host):
    assert PROVIDERS.for_host(host) is None


def test_a_region_that_the_table_does_not_list_is_still_a_region():
    openai = PROVIDERS.by_name("openai")

    assert openai.geo_of("kr.api.openai.com") == "unlisted"
    assert openai.geo_of("api.openai.com") is None


def test_telemetry_and_sites_beside_codex_are_free_in_every_way():
    for host, path in (("ab.chatgpt.com", "/otlp/v1/metrics"), ("chat.openai.com", "/"), ("ws.chatgpt.com", "/socket")):
        for method in ("GET", "POST", "PUT"):
            found = route(host, method, path)
            assert found == Free(), (host, method)
            assert found.upgrades, (host, method)


def test_an_upgrade_is_not_free_in_a_metered_folder_nor_on_a_host_that_is_metered_as_a_whole():
    for path in ("/backend-api/codex/responses", "/backend-api/x/../codex/responses", "/backend-api%2fcodex/responses"):
        assert not route("chatgpt.com", "GET", path).upgrades, path
    assert not route("chatgpt.com", "GET", "/x%255c").upgrades
    assert not route("api.openai.com", "GET", "/v1/responses").upgrades


def test_azures_regional_hosts_are_metered_where_models_are_only():
    host = "eastus.api.cognitive.microsoft.com"

    assert route(host, "POST", "/openai/deployments/d/chat/completions") == Metered("openai_chat", "d")
    assert route(host, "POST", "/openai/images/generations") == Unknown()
    assert route(host, "POST", "/sts/v1.0/issueToken") == Free()


def test_a_star_stands_for_one_label_only():
    assert PROVIDERS.for_host("a.b.openai.azure.com") is None
    assert PROVIDERS.for_host("-aiplatform.googleapis.com") is None
    assert PROVIDERS.for_host("evil.com.x-aiplatform.googleapis.com") is None


def test_vendors_without_a_wire_are_unknown_and_never_a_tunnel():
    for provider in PROVIDERS.all():
        if not provider.wires:
            below = provider.metered_below[0].replace("*", "x") if provider.metered_below else "/"
            assert provider.route("POST", f"{below}v1/chat/completions") == Unknown(), provider.name


WIRES = {
    *("openai_chat", "openai_responses", "openai_embeddings", "openai_completions", "openai_compact"),
    *("anthropic_batches", "compatible_completions", "openai_images", "openai_speech", "openai_transcriptions"),
    *("anthropic_messages", "gemini", "gemini_embed", "gemini_interactions", "code_assist"),
    *("bedrock_converse", "bedrock_invoke"),
}
BEDROCK = "bedrock-runtime.us-east-1.amazonaws.com"
ARN = "arn:aws:bedrock:us-east-1:1:application-inference-profile/Abc123"
UNMETERED = {"github_models", "bedrock_gov"}  # retired; at prices that are not known


def test_every_vendor_but_a_few_is_metered_in_a_format_that_there_is():
    wires = {provider.name: {*provider.wires.values(), *provider.polls.values()} for provider in PROVIDERS.all()}

    assert {name for name, found in wires.items() if not found} == UNMETERED
    assert set().union(*wires.values()) == WIRES


def test_no_path_is_both_billed_and_free():
    for provider in PROVIDERS.all():
        for method, pattern in provider.free:
            path = pattern.replace("{model}", "x").replace("*", "x")
            assert provider.route(method, path) == Free(), (provider.name, pattern)


def test_every_billed_path_is_metered_and_none_of_its_get_is():
    for provider in PROVIDERS.all():
        for pattern, wire in provider.wires.items():
            named = "m" if "{model}" in pattern else ARN if "{arn}" in pattern else None
            path = pattern.replace("{model}", "m").replace("{arn}", ARN).replace("*", "x")
            assert provider.route("POST", path) == Metered(wire, named)
            assert provider.route("GET", path) == Free()
            assert pattern == pattern.lower(), (provider.name, pattern)


@pytest.mark.parametrize(
    ("host", "path", "wire", "model"),
    [
        ("api.openai.com", "/v1/responses?beta=true", "openai_responses", None),
        ("api.openai.com", "/v1/responses/compact", "openai_compact", None),
        ("chatgpt.com", "/backend-api/codex/responses", "openai_responses", None),
        (
            "generativelanguage.googleapis.com",
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "gemini",
            "gemini-2.5-pro",
        ),
        (
            "generativelanguage.googleapis.com",
            "/v1/models/gemini-4-argon:streamGenerateContent?alt=sse",
            "gemini",
            "gemini-4-argon",
        ),
        ("generativelanguage.googleapis.com", "/v1beta/models/e:batchEmbedContents", "gemini_embed", "e"),
        ("generativelanguage.googleapis.com", "/v1beta/openai/chat/completions", "openai_chat", None),
        (
            "us-east5-aiplatform.googleapis.com",
            "/v1/projects/p/locations/us-east5/publishers/anthropic/models/claude-opus-5@20260724:streamRawPredict",
            "anthropic_messages",
            "claude-opus-5@20260724",
        ),
        (
            "aiplatform.googleapis.com",
            "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-3.8-flash:generateContent",
            "gemini",
            "gemini-3.8-flash",
        ),
        ("aiplatform.googleapis.com", "/v1/publishers/google/models/g:streamGenerateContent", "gemini", "g"),
        ("r.openai.azure.com", "/openai/deployments/My-Dep/chat/completions?api-version=1", "openai_chat", "My-Dep"),
        ("r.services.ai.azure.com", "/anthropic/v1/messages", "anthropic_messages", None),
        ("r.cognitiveservices.azure.com", "/openai/v1/embeddings", "openai_embeddings", None),
        ("bedrock-mantle.us-east-1.api.aws", "/openai/v1/responses", "openai_responses", None),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/anthropic/v1/messages", "anthropic_messages", None),
        (BEDROCK, "/model/us.anthropic.claude-opus-5/invoke", "bedrock_invoke", "us.anthropic.claude-opus-5"),
        (BEDROCK, "/model/a.b-v1%3A0/converse-stream", "bedrock_converse", "a.b-v1:0"),
        (BEDROCK, "/model/A.b-v1:0/Converse?x=1", "bedrock_converse", "A.b-v1:0"),
        (BEDROCK, f"/model/{quote(ARN, safe='')}/invoke-with-response-stream", "bedrock_invoke", ARN),
        ("openrouter.ai", "/api/v1/chat/completions", "openai_chat", None),
        ("api.deepseek.com", "/chat/completions", "openai_chat", None),
        ("api.groq.com", "/openai/v1/chat/completions", "openai_chat", None),
        ("api.z.ai", "/api/coding/paas/v4/chat/completions", "openai_chat", None),
        ("api.kimi.com", "/coding/v1/messages", "anthropic_messages", None),
        ("api.fireworks.ai", "/inference/v1/completions", "compatible_completions", None),
        ("gateway.ai.cloudflare.com", "/v1/account/gateway/compat/chat/completions", "openai_chat", None),
        (
            "claude.googleapis.com",
            "/v1/projects/p/locations/l/workspaces/w/invoke/v1/messages",
            "anthropic_messages",
            None,
        ),
    ],
)
def test_a_vendors_billed_paths(host, path, wire, model):
    assert route(host, "POST", path) == Metered(wire, model)


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("api.openai.com", "/v1/images/variations"),
        ("api.openai.com", "/v1/decisions"),
        ("generativelanguage.googleapis.com", "/v1beta/tunedModels/t:generateContent"),
        ("generativelanguage.googleapis.com", "/v1beta/models/veo:predictLongRunning"),
        ("generativelanguage.googleapis.com", "/v1beta/models/m:batchGenerateContent"),
        ("generativelanguage.googleapis.com", "/v1beta/cachedContents"),
        ("generativelanguage.googleapis.com", "/v1beta/decisions"),
        ("generativelanguage.googleapis.com", "/v1beta/interactions/i"),
        ("generativelanguage.googleapis.com", "/v1beta/auth_tokens"),
        ("aiplatform.googleapis.com", "/v1/projects/p/locations/l/endpoints/e:generateContent"),
        ("aiplatform.googleapis.com", "/v1/projects/p/locations/l/publishers/google/models/m:predict"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/model/m/invoke-with-bidirectional-stream"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/model/a%2Fb/converse"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/model/m%253A0/converse"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/model/a%2Fb/count-tokens"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/async-invoke"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/guardrail/g/version/1/apply"),
        ("bedrock-agent-runtime.us-east-1.amazonaws.com", "/agents/a/agentAliases/b/sessions/c/text"),
        ("bedrock.us-east-1.amazonaws.com", "/model-invocation-job"),
        ("bedrock-runtime.us-gov-west-1.amazonaws.com", "/model/anthropic.claude-opus-5/invoke"),
        ("cloudcode-pa.googleapis.com", "/v1internal:generateChat"),
        ("api.x.ai", "/v1/images/generations"),
        ("management-api.x.ai", "/auth/teams/t/api-keys"),
        ("api.mistral.ai", "/v1/agents/completions"),
        ("api.perplexity.ai", "/chat/completions"),
        ("openrouter.ai", "/api/v1/credits/coinbase"),
        ("models.github.ai", "/inference/chat/completions"),
        ("r.openai.azure.com", "/openai/deployments/a/b/chat/completions"),
        ("r.openai.azure.com", "/openai/deployments/d/images/generations"),
        ("gateway.ai.cloudflare.com", "/v1/a/g"),
    ],
)
def test_whatever_else_a_vendor_sells_is_unknown(host, path):
    assert route(host, "POST", path) == Unknown()


def test_counting_is_free_also_where_its_path_looks_like_a_billed_one():
    claude = "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict"

    assert route("aiplatform.googleapis.com", "POST", claude) == Free()
    assert route("aiplatform.googleapis.com", "POST", claude.replace("count", "Count")) != Free()
    assert route("generativelanguage.googleapis.com", "POST", "/v1beta/models/m:countTokens") == Free()
    for colon in (":", "%3A", "%3a"):
        assert route(BEDROCK, "POST", f"/model/anthropic.claude-haiku-4-5-v1{colon}0/count-tokens") == Free()
    assert route(BEDROCK, "POST", "/model/anthropic.claude-haiku-4-5-v1%253A0/count-tokens") == Unknown()


FOUNDATION = "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-haiku-4-5-v1:0"


@pytest.mark.parametrize(
    "coded", [quote(FOUNDATION, safe=""), quote(FOUNDATION, safe=":"), quote(FOUNDATION), FOUNDATION]
)
def test_counting_for_an_arn_is_free_however_its_slash_is_written(coded):
    for host in (BEDROCK, "bedrock-runtime.us-gov-west-1.amazonaws.com"):
        assert route(host, "POST", f"/model/{coded}/count-tokens") == Free()


@pytest.mark.parametrize(
    "path",
    [
        "/model/arn%3Aaws%3Abedrock%2Fa%2Fb/count-tokens",
        "/model/arn%3Aaws%3Abedrock%2F..%2Fcount-tokens",
        "/model/arn%3Aaws%3Abedrock%252Fa/count-tokens",
        "/model/x%2Farn%3Aa/count-tokens",
        "/model%2Farn%3Aaws%3Abedrock%2Fa/count-tokens",
        "/model/arn%3Aaws%3Abedrock%2Fa%2Fcount-tokens",
        "/model/arn%3Aaws%3Abedrock%2Fa/count-tokens%2Fx",
    ],
)
def test_what_is_no_arn_in_the_place_of_the_model_is_not_free(path):
    assert route(BEDROCK, "POST", path) == Unknown()


def test_a_later_look_at_a_background_reply_may_settle_it():
    openai = PROVIDERS.by_name("openai")

    assert openai.route("GET", "/v1/responses/resp_1").polls == "openai_responses"
    assert openai.route("POST", "/v1/responses/resp_1/cancel").polls == "openai_responses"
    assert openai.route("GET", "/v1/responses").polls is None
    assert openai.route("GET", "/v1/models/m").polls is None


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages",
        "/v1/messages?beta=true",
        "//v1/messages",
        "/v1//messages/",
        "/v1/v1/messages",
        "/v1/./messages",
        "/v1/x/../messages",
        "/v1/messages/count_tokens/..",
        "/v1/%6dessages",
        "/v1%2Fmessages",
        "/%2e%2e/v1/messages",
        "/V1/Messages",
        "/v1/messages#count_tokens",
    ],
)
def test_no_spelling_of_a_metered_path_escapes(path):
    assert route("api.anthropic.com", "POST", path) == Metered("anthropic_messages")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/%256dessages",
        "/v1/messages;x=1",
        "/v1\\messages",
        "/v1/messages%00",
        "/v1/messages%0a",
        "/v1/messages%7f",
        "/v1/messages%20",
        "/v1/messages/batches/x",
        "/v1/complete",
        "/v1/messages/count_tokens/",
        "//v1/messages/count_tokens",
        "/v1/messages/%63ount_tokens",
        "/v1/messages/count_tokens/x",
        "/v1/messages/x/../count_tokens",
        "/V1/messages/count_tokens",
        "/api/oauth",
        "",
        "*",
    ],
)
def test_tricks_and_unlisted_paths_are_unknown(path):
    assert route("api.anthropic.com", "POST", path) == Unknown()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/messages/count_tokens?beta=true"),
        ("POST", "/v1/messages/batches/msgbatch_1/cancel"),
        ("POST", "/api/event_logging/v2/batch"),
        ("POST", "/api/oauth/claude_cli/roles"),
        ("POST", "/v1/skills/skill_01AbC/versions"),
        ("GET", "/v1/messages"),
        ("HEAD", "/api/hello"),
        ("OPTIONS", "/v1/messages"),
        ("DELETE", "/v1/files/file_1"),
    ],
)
def test_listed_posts_and_reading_methods_are_free(method, path):
    assert route("api.anthropic.com", method, path) == Free()


@pytest.mark.parametrize("method", ["PUT", "PATCH", "CONNECT", "TRACE", "get", "post", "BREW"])
def test_other_methods_are_unknown(method):
    assert route("api.anthropic.com", method, "/v1/messages") == Unknown()


def test_openai_chat_is_metered_and_its_control_plane_is_free():
    assert route("us.api.openai.com", "POST", "/v1/chat/completions") == Metered("openai_chat")
    assert route("api.openai.com", "POST", "/v1/embeddings") == Metered("openai_embeddings")
    assert route("api.openai.com", "POST", "/v1/moderations") == Free()
    assert route("api.openai.com", "POST", "/v1/responses/resp_1/cancel") == Free()
    for path in ("/v1/threads/runs", "/v1/batches", "/v1/realtime/calls", "/v1/videos"):
        assert route("api.openai.com", "POST", path) == Unknown()


def test_chatgpt_is_metered_below_the_codex_folder_only():
    assert route("chatgpt.com", "POST", "/backend-api/conversation") == Free()
    assert route("chatgpt.com", "POST", "/backend-api/codexes/x") == Free()
    for path in ("/backend-api/codex/responses", "/backend-api//codex/responses", "/Backend-API/%63odex/responses"):
        assert route("chatgpt.com", "POST", path) == Metered("openai_responses")
    for path in ("/backend-api/codex/../x", "/backend-api%252fcodex/responses", "/backend-api/codex"):
        assert route("chatgpt.com", "POST", path) == Unknown()


def test_cloudflare_is_metered_below_the_ai_folder_of_any_account():
    assert route("api.cloudflare.com", "POST", "/client/v4/accounts/a1/ai/v1/chat/completions") == Metered(
        "openai_chat"
    )
    assert route("api.cloudflare.com", "POST", "/client/v4/accounts/a1/ai/run/@cf/meta/llama") == Unknown()
    assert route("api.cloudflare.com", "POST", "/client/v4/zones/z1/purge_cache") == Free()


def test_regional_hosts_carry_their_region():
    openai = PROVIDERS.by_name("openai")

    assert [openai.geo_of(host) for host in ("api.openai.com", "eu.api.openai.com", "gov.api.openai.com")] == [
        None,
        "eu",
        "fedramp",
    ]


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("aiplatform.googleapis.com", "global"),
        ("europe-west4-aiplatform.googleapis.com", "regional"),
        ("aiplatform.eu.rep.googleapis.com", "regional"),
        ("bedrock-runtime.us-west-2.amazonaws.com", "global"),
        ("bedrock-mantle.us-east-1.api.aws", "global"),
        ("bedrock-runtime-fips.ca-central-1.amazonaws.com", "elsewhere"),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", "elsewhere"),
        ("x-1.bedrock-runtime.us-east-2.vpce.amazonaws.com", "global"),
        ("x-1.bedrock-runtime.eu-west-1.vpce.amazonaws.com", "elsewhere"),
        ("r.openai.azure.com", "data_zone"),
        ("eastus.api.cognitive.microsoft.com", "data_zone"),
        ("api.deepseek.com", None),
    ],
)
def test_a_host_says_the_region_that_its_prices_are_for(host, region):
    assert PROVIDERS.for_host(host).geo_of(host) == region


def test_azure_bills_some_errors():
    azure = PROVIDERS.by_name("azure")

    assert azure.bills(408, None)
    assert azure.bills(400, "content_filter")
    assert not azure.bills(400, "invalid_prompt")
    assert not PROVIDERS.by_name("openai").bills(408, None)


def test_what_lockpin_may_add_is_said_per_vendor():
    assert PROVIDERS.by_name("openai").output_field == "max_completion_tokens"
    assert PROVIDERS.by_name("deepseek").output_field == "max_tokens"
    assert PROVIDERS.by_name("cloudflare_gateway").output_field == "max_tokens"
    assert not PROVIDERS.by_name("mistral").include_usage
    assert not PROVIDERS.by_name("chatgpt").output_settable
    assert {p.name for p in PROVIDERS.all() if p.output_beside_limit} == {"qwen", "xai"}
    assert {p.name for p in PROVIDERS.all() if p.deployments} == {"azure", "azure_regional"}
    assert {p.name for p in PROVIDERS.all() if p.plan} == {"chatgpt", "kimi", "code_assist"}


OLD, NEW = "max_tokens", "max_completion_tokens"


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ((NEW, OLD), {"openai", "groq", "moonshot", "openrouter", "xai", "bedrock"}),
        ((OLD, NEW), {"fireworks", "gemini"}),
        ((OLD,), {"deepseek", "zai", "mistral", "together", "huggingface", "kimi", "meta", "vercel", "cloudflare"}),
        ((NEW,), {"cerebras", "qwen"}),
    ],
)
def test_which_output_limits_a_host_obeys(fields: tuple[str, ...], names: set[str]):
    found = {p.name for p in PROVIDERS.all() if dict(p.output_fields) == {"*": fields}}

    assert found == names


def test_a_host_for_several_makers_obeys_what_the_path_or_the_model_does():
    gateway, azure = PROVIDERS.by_name("cloudflare_gateway"), PROVIDERS.by_name("azure")
    copilot, vertex = PROVIDERS.by_name("copilot"), PROVIDERS.by_name("vertex")

    assert gateway.limit_fields("/v1/a/b/OpenAI/chat/completions?x=1") == (("*", (NEW, OLD)),)
    assert gateway.limit_fields("/v1/a/b/deepseek/chat/completions") == (("*", (OLD,)),)
    assert gateway.limit_fields("/v1/a/b/mistral/v1/chat/completions") == (("*", (OLD,)),)
    common = dict(gateway.limit_fields("/v1/a/b/compat/chat/completions"))
    assert common == {"openai/*": (NEW, OLD), "grok/*": (NEW, OLD), "*": (OLD,)}
    assert azure.limit_fields("/models/chat/completions") == (("*", (OLD,)),)
    assert azure.limit_fields("/openai/v1/chat/completions")[0] == ("*", (NEW, OLD))
    assert copilot.limit_fields("/chat/completions")[:2] == (("gpt-5*", (NEW, OLD)), ("*", (OLD, NEW)))
    assert vertex.limit_fields("/v1/x")[:2] == (("google/*", (OLD, NEW)), ("*", (OLD,)))


def test_a_host_of_chats_says_with_a_source_which_output_limits_it_obeys():
    chats = [p for p in PROVIDERS.all() if "openai_chat" in p.wires.values()]
    assert len(chats) == 24

    for provider in chats:
        head = (shipped_dir() / f"{provider.name}.yaml").read_text("utf-8").partition("\nmodels:\n")[0]
        said = head[head.index("\noutput_fields:") :].split("\n")[1:]
        block = [said[0], *itertools.takewhile(lambda line: line.startswith("  "), said[1:])]
        assert any("#" in line for line in block), provider.name


def test_a_host_that_says_nothing_obeys_the_one_limit_that_is_added():
    plain = replace(PROVIDERS.by_name("deepseek"), output_fields=())

    assert plain.limit_fields("/chat/completions") == (("*", (OLD,)),)
    assert replace(plain, output_field=NEW).limit_fields("/chat/completions") == (("*", (NEW,)),)


def test_an_unknown_name_is_no_provider():
    assert PROVIDERS.by_name("nobody") is None


HEAD = "provider: p\nbase: https://p\nhosts: [p]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("provider: q\n", "must be a mapping with provider: p"),
        ("[", "p.yaml is not YAML"),
        ("- x\n", "must be a mapping"),
        (HEAD + "wirez: {}\n", "wirez is no key of a provider"),
        ("provider: p\nhosts: [p]\n", "base is None; text is allowed"),
        (HEAD + "free: [/v1/x]\n", "free has '/v1/x'; \"METHOD /path\" is allowed"),
        (HEAD + "free: x\n", "free is 'x'; a list of texts"),
        (HEAD + "wires: [x]\n", "wires is ['x']; a mapping of texts"),
        (HEAD + "output_fields: [max_output]\n", "output_fields of * is ['max_output']; a list of max_tokens"),
        (HEAD + "output_fields: max_tokens\n", "output_fields of * is 'max_tokens'; a list"),
        (HEAD + "output_fields: {gpt*: []}\n", "output_fields of gpt* is []; a list"),
        (HEAD + "output_field: max_tokens\noutput_fields: [max_tokens]\n", "output_field and output_fields are both"),
        (HEAD + "max_tps: fast\n", "max_tps is 'fast'; a whole number"),
        (HEAD + "include_usage: maybe\n", "include_usage is 'maybe'; true or false"),
        (HEAD + "billed_errors: 408\n", "billed_errors is '408'; a list"),
        (HEAD + "billed_errors: [{status: x, code: y}]\n", "billed_errors is 'x'"),
    ],
)
def test_a_bad_file_is_named_with_what_is_allowed(tmp_path: Path, text, said):
    (tmp_path / "p.yaml").write_text(text)

    with pytest.raises(PriceError) as caught:
        Providers.load(tmp_path)

    assert "p.yaml" in str(caught.value)
    assert said in str(caught.value)


def test_a_folder_without_files_and_a_host_with_two_owners_are_errors(tmp_path: Path):
    with pytest.raises(PriceError, match="holds no price files"):
        Providers.load(tmp_path)

    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"provider: {name}\nbase: https://x\nhosts: [x]\n")
    with pytest.raises(PriceError, match="host x belongs to both a and b"):
        Providers.load(tmp_path)


@pytest.mark.parametrize(
    ("host", "path"),
    [
        *(
            ("cloudcode-pa.googleapis.com", f"/v1internal:{verb}")
            for verb in (
                "listExperiments",
                "fetchAdminControls",
                "recordCodeAssistMetrics",
                "setCodeAssistGlobalUserSetting",
            )
        ),
        ("api.openai.com", "/v1/chat/completions/chatcmpl-abc123"),
        ("r.openai.azure.com", "/openai/responses/input_tokens"),
        ("r.openai.azure.com", "/openai/v1/responses/input_tokens"),
    ],
)
def test_what_runs_no_model_is_free_to_post(host: str, path: str):
    assert route(host, "POST", path) == Free()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/abc",
        "/v1/chat/completions/chatcmpl-abc/x",
        "/v1/chat/completions/chatcmpl-abc%2Fx",
    ],
)
def test_only_a_stored_completion_itself_is_free_to_change(path: str):
    assert route("api.openai.com", "POST", path) == Unknown()


def test_the_call_itself_stays_metered():
    assert route("api.openai.com", "POST", "/v1/chat/completions/") == Metered("openai_chat")


def test_headers_that_touch_the_cost_are_written_in_lower_case():
    for provider in PROVIDERS.all():
        assert all(name == name.lower() and name.startswith("x-") for name in provider.cost_headers)


@pytest.mark.parametrize(
    ("host", "place", "geo"),
    [
        ("aiplatform.googleapis.com", "/locations/global", "global"),
        ("aiplatform.googleapis.com", "/locations/us-east5", "regional"),
        ("aiplatform.googleapis.com", "/Locations/us%2Deast5", "regional"),
        ("aiplatform.googleapis.com", "/locations/eu", "regional"),
        ("aiplatform.googleapis.com", "", "global"),
        ("us-east5-aiplatform.googleapis.com", "/locations/global", "regional"),
        ("us-east5-aiplatform.googleapis.com", "/locations/us-east5", "regional"),
    ],
)
def test_where_a_call_is_served_is_said_by_the_host_or_else_by_the_path(host: str, place: str, geo: str):
    path = f"/v1/projects/p{place}/publishers/google/models/m:generateContent"

    assert PROVIDERS.by_name("vertex").geo_of(host, path) == geo


def test_a_location_in_the_path_says_nothing_where_a_vendor_does_not_price_by_it():
    assert PROVIDERS.by_name("openai").geo_of("api.openai.com", "/v1/projects/p/locations/us-east5") is None


@pytest.mark.parametrize(
    ("name", "wire", "path"),
    [
        ("openai", "openai_chat", "/v1/chat/completions"),
        ("openrouter", "anthropic_messages", "/api/v1/messages"),
        ("azure", "openai_chat", "/openai/v1/chat/completions"),  # not the one of a deployment
        ("bedrock", "openai_responses", "/openai/v1/responses"),
        ("anthropic", "openai_chat", None),
        ("gemini", "gemini", None),  # whether it streams is in the path too
        ("bedrock", "bedrock_converse", None),
        ("vertex", "anthropic_messages", None),  # nor is the project known
    ],
)
def test_path_of_a_format_is_the_first_that_is_written_out(name, wire, path):
    provider = PROVIDERS.by_name(name)

    assert provider is not None
    assert provider.path_for(wire, "m") == path


def test_only_path_of_a_format_may_name_the_model():
    wires = {"/d/{model}/chat": "openai_chat", "/*/{model}/x": "gemini"}
    provider = Provider("a", "https://h", ("h",), wires=wires)

    assert provider.path_for("openai_chat", "a:b/c") == "/d/a%3Ab%2Fc/chat"
    assert provider.path_for("gemini", "m") is None
