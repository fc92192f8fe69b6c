import pytest

from lockpin_core.call import Rewrite
from lockpin_core.wire.openai_rewrite import rewritten
from lockpin_core.wire.splice import Splice

ASKS = b'{"include_usage":true}'


@pytest.mark.parametrize(
    ("change", "raw", "wanted"),
    [
        (Rewrite(), b'{ "a":1}', b'{ "a":1}'),
        (Rewrite(7), b'{"a":1, "most": null}', b'{"a":1, "most": 7}'),
        (Rewrite(7), b'{"a":1}', b'{"most":7,"a":1}'),
        (Rewrite(ask_usage=True), b'{"a":1}', b'{"stream_options":%b,"a":1}' % ASKS),
        (Rewrite(ask_usage=True), b'{"stream_options" : null}', b'{"stream_options" : %b}' % ASKS),
        (
            Rewrite(ask_usage=True),
            b'{"stream_options":{ "include_obfuscation":false}}',
            b'{"stream_options":{"include_usage":true, "include_obfuscation":false}}',
        ),
        (
            Rewrite(7, ask_usage=True),
            b'{"stream_options":{"include_usage": false},"most":9}',
            b'{"stream_options":{"include_usage": true},"most":7}',
        ),
    ],
)
def test_limit_and_usage_are_set_beside_what_the_client_wrote(change: Rewrite, raw: bytes, wanted: bytes):
    limits = {} if change.max_output is None else {"most": b"%d" % change.max_output}

    assert rewritten(Splice.of(raw), change, limits) == wanted
