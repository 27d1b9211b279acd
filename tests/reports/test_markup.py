from keras_compembed.reports.markup import element
from keras_compembed.reports.markup import join
from keras_compembed.reports.markup import shown_word


def test_text_and_attributes_are_escaped_and_markup_is_not():
    inner = element("b", "<&>", 3, None)
    assert inner == "<b>&lt;&amp;&gt;3</b>"
    outer = element("p", [inner, "<i>"], class_="a", data_x='"', id=None)
    assert outer == (
        '<p class="a" data-x="&quot;"><b>&lt;&amp;&gt;3</b>&lt;i&gt;</p>'
    )
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert join(["a", inner], ", ") == f"a, {inner}"


def test_words_are_shown_whatever_they_are():
    assert shown_word("<script>") == "<bdi>&lt;script&gt;</bdi>"
    assert shown_word(7) == "<bdi>7</bdi>"
    assert shown_word("") == "<i>(empty)</i>"
    assert shown_word(" \t") == "<i>&#x27; \\t&#x27;</i>"
    # Half of a character, NUL and separators, which files cannot hold or
    # readers not see; joined emoji stay joined.
    assert shown_word("\ud83da\0\u2028") == "<bdi>\\ud83da\\x00\\u2028</bdi>"
    family = "\U0001f469\u200d\U0001f467"
    assert shown_word(family) == f"<bdi>{family}</bdi>"
    long = shown_word("x" * 5000, longest=10)
    assert ">xxxxxxxxxx…<" in long and len(long) < 200
