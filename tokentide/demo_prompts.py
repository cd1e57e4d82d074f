"""The eight prompts of `tokentide demo`: a few words to several hundred tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoPrompt:
    name: str
    text: str
    max_tokens: int


_TIDES = (
    "The sea rises and falls twice a day on most coasts, and people have asked why for as long as they have"
    " fished. The first useful answer came with gravity. The moon pulls on the water of the near side of the"
    " earth a little more than on the earth itself, and on the earth a little more than on the water of the far"
    " side. So the ocean is stretched along the line to the moon, and two bulges form, one beneath the moon and"
    " one opposite. The earth turns under them, and a harbour passes through both in a little more than a day:"
    " two high waters, two low ones. The sun does the same with somewhat less than half the strength. When sun"
    " and moon stand in one line, at new moon and full moon, their pulls add up to spring tides; when they stand"
    " at a right angle, the neap tides are weak."
    "\n\nThis picture explains the rhythm, but not the heights. In the open ocean the bulge is barely half a"
    " metre high. It is the shape of the coast that makes a tide large. Water that runs into a narrowing bay is"
    " piled up by its walls, and if the bay is just so long that a wave needs about six hours to run in and out"
    " again, each tide pushes the swing that the last one left, as a child is pushed on a swing. In the Bay of"
    " Fundy the sea rises by up to sixteen metres in this way; in the Mediterranean, which has a narrow door to"
    " the ocean, often by less than thirty centimetres. On a turning globe the moving water is also turned aside,"
    " so that the tide walks around fixed points in the middle of a sea where the level hardly changes at all."
    "\n\nTides are work. Where the stream squeezes through a strait it can be caught by turbines, and a dam across"
    " an estuary can hold the high water back and let it out through generators when the level outside has"
    " fallen. The station on the Rance in France has done this since 1966. It is a reliable kind of power, since"
    " the hours of the tide are known years ahead, but such dams change the mud, the fish and the birds of the"
    " whole river mouth, and only few have been built."
    "\n\nAll this motion rubs against the sea floor, and friction has a price. It slows the earth: the day grows"
    " by about two thousandths of a second in a century. What the earth loses in spin the moon gains in distance,"
    " nearly four centimetres in a year. Growth lines of fossil corals tell of a time, four hundred million years"
    " ago, when the year had some four hundred days. The same friction, exerted by the earth, has long since"
    " stopped the moon's own turning with respect to us, and that is why it always shows us the same face."
)

DEMO_PROMPTS = (
    DemoPrompt("paris", "What is the capital of France?", 48),
    DemoPrompt("haiku", "Write a haiku about the sea in autumn.", 48),
    DemoPrompt("planets", "List the planets of the solar system, one line each.", 64),
    DemoPrompt("sky", "Explain to a child, in three short sentences, why the sky is blue.", 56),
    DemoPrompt(
        "mail",
        "Write a short, friendly mail to a neighbour: thank her for watering the plants while we were away for"
        " two weeks, tell her that the tomatoes have never looked so well, and invite her to dinner on Friday"
        " evening at seven.",
        64,
    ),
    DemoPrompt(
        "python",
        "Here is a Python function:\n\n"
        "def median(values):\n"
        "    ordered = sorted(values)\n"
        "    middle = len(ordered) // 2\n"
        "    if len(ordered) % 2:\n"
        "        return ordered[middle]\n"
        "    return (ordered[middle - 1] + ordered[middle]) / 2\n\n"
        "Say in plain words what it does, what it returns for [3, 1, 2], and what goes wrong for an empty list.",
        64,
    ),
    DemoPrompt(
        "story",
        "Continue this story: The lighthouse had been dark for eleven years when Mara found the key. It lay under"
        " a loose board in her grandfather's boathouse, wrapped in oilcloth, beside a letter that began with her"
        " name. She read it twice by the light of her phone. Then she walked down to the water, where the old"
        " rowing boat still lay upside down on the stones, and turned it over. The oars were where they had"
        " always been. Out on the rock the tower stood black against the last light. Halfway across, she looked"
        " up, and somebody had lit the lamp.",
        64,
    ),
    DemoPrompt("tides", f"{_TIDES}\n\nSummarize this text in two sentences.", 48),
)
