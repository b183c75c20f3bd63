"""The text of the `smoke` profile: English and French sentences of our own, from a small grammar with agreement.

`python tests/smoke_text.py` writes `flows/profiles/smoke.{en,fr,key}` and `smoke-other.{en,fr}` anew; a
test holds the committed files to it. The sentences are plain and correct, so that two tiny systems have
something to learn; `DIRTY` adds lines for the cleaning to mend or drop.
"""

import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PROFILES = Path(__file__).parents[1] / "flows" / "profiles"
SEED, PAIRS, OTHER_PAIRS = 7, 600, 200


class Pair(NamedTuple):
    """A phrase in both languages."""

    en: str
    fr: str


class Noun(NamedTuple):
    """Singular and plural; `fem` is the French gender."""

    en: str
    ens: str
    fr: str
    frs: str
    fem: bool


class Adjective(NamedTuple):
    """French masculine and feminine, both numbers; `vowel` is the masculine before a vowel."""

    en: str
    m: str
    f: str
    ms: str
    fs: str
    first: bool = False  # stands before the noun
    vowel: str = ""


class Verb(NamedTuple):
    """French present for je, il, nous, vous, ils; the future's stem; the past participle (with avoir)."""

    en: str
    ens: str
    past: str
    infinitive: str
    present: tuple[str, str, str, str, str]
    future: str
    participle: str


class Subject(NamedTuple):
    """Who does it: `person` counts as in `Verb.present`; `third` is the English -s."""

    en: str
    fr: str
    person: int
    third: bool


NOUNS = [
    Noun("apple", "apples", "pomme", "pommes", True), Noun("book", "books", "livre", "livres", False),
    Noun("letter", "letters", "lettre", "lettres", True), Noun("house", "houses", "maison", "maisons", True),
    Noun("garden", "gardens", "jardin", "jardins", False), Noun("horse", "horses", "cheval", "chevaux", False),
    Noun("flower", "flowers", "fleur", "fleurs", True), Noun("boat", "boats", "bateau", "bateaux", False),
    Noun("key", "keys", "clé", "clés", True), Noun("tree", "trees", "arbre", "arbres", False),
    Noun("island", "islands", "île", "îles", True), Noun("egg", "eggs", "œuf", "œufs", False),
    Noun("song", "songs", "chanson", "chansons", True), Noun("story", "stories", "histoire", "histoires", True),
    Noun("hat", "hats", "chapeau", "chapeaux", False), Noun("bridge", "bridges", "pont", "ponts", False),
    Noun("bottle", "bottles", "bouteille", "bouteilles", True), Noun("door", "doors", "porte", "portes", True),
]  # fmt: skip
ADJECTIVES = [
    Adjective("big", "grand", "grande", "grands", "grandes", True),
    Adjective("small", "petit", "petite", "petits", "petites", True),
    Adjective("old", "vieux", "vieille", "vieux", "vieilles", True, "vieil"),
    Adjective("new", "nouveau", "nouvelle", "nouveaux", "nouvelles", True, "nouvel"),
    Adjective("beautiful", "beau", "belle", "beaux", "belles", True, "bel"),
    Adjective("red", "rouge", "rouge", "rouges", "rouges"),
    Adjective("white", "blanc", "blanche", "blancs", "blanches"),
    Adjective("black", "noir", "noire", "noirs", "noires"),
    Adjective("green", "vert", "verte", "verts", "vertes"),
    Adjective("heavy", "lourd", "lourde", "lourds", "lourdes"),
]


def regular(en: str, ens: str, past: str, infinitive: str) -> Verb:
    """A French verb in -er; those in -ger keep their sound: nous mangeons."""
    stem = infinitive.removesuffix("er")
    present = (
        f"{stem}e",
        f"{stem}e",
        f"{stem}{'e' if stem[-1] == 'g' else ''}ons",
        f"{stem}ez",
        f"{stem}ent",
    )
    return Verb(en, ens, past, infinitive, present, infinitive, f"{stem}é")


BUYS = ("achète", "achète", "achetons", "achetez", "achètent")
CLEANS = ("nettoie", "nettoie", "nettoyons", "nettoyez", "nettoient")
WAITS = ("attends", "attend", "attendons", "attendez", "attendent")
ACTIONS = [
    Verb("see", "sees", "saw", "voir", ("vois", "voit", "voyons", "voyez", "voient"), "verr", "vu"),
    Verb("buy", "buys", "bought", "acheter", BUYS, "achèter", "acheté"),
    Verb(
        "sell", "sells", "sold", "vendre", ("vends", "vend", "vendons", "vendez", "vendent"), "vendr", "vendu"
    ),
    regular("find", "finds", "found", "trouver"),
    Verb(
        "lose", "loses", "lost", "perdre", ("perds", "perd", "perdons", "perdez", "perdent"), "perdr", "perdu"
    ),
    Verb(
        "take",
        "takes",
        "took",
        "prendre",
        ("prends", "prend", "prenons", "prenez", "prennent"),
        "prendr",
        "pris",
    ),
    regular("draw", "draws", "drew", "dessiner"),
    regular("look for", "looks for", "looked for", "chercher"),
    Verb("clean", "cleans", "cleaned", "nettoyer", CLEANS, "nettoier", "nettoyé"),
]
STATES = [
    Verb(
        "sleep",
        "sleeps",
        "slept",
        "dormir",
        ("dors", "dort", "dormons", "dormez", "dorment"),
        "dormir",
        "dormi",
    ),
    regular("work", "works", "worked", "travailler"),
    regular("sing", "sings", "sang", "chanter"),
    Verb("wait", "waits", "waited", "attendre", WAITS, "attendr", "attendu"),
    regular("play", "plays", "played", "jouer"),
    regular("eat", "eats", "ate", "manger"),
]
MODALS = [
    Verb("can", "can", "", "pouvoir", ("peux", "peut", "pouvons", "pouvez", "peuvent"), "", ""),
    Verb("must", "must", "", "devoir", ("dois", "doit", "devons", "devez", "doivent"), "", ""),
    Verb("want to", "wants to", "", "vouloir", ("veux", "veut", "voulons", "voulez", "veulent"), "", ""),
]
SAY = Verb("say", "says", "said", "dire", ("dis", "dit", "disons", "dites", "disent"), "dir", "dit")
PEOPLE = [
    Subject("my mother", "ma mère", 1, True), Subject("my father", "mon père", 1, True),
    Subject("the doctor", "le médecin", 1, True), Subject("the baker", "le boulanger", 1, True),
    Subject("our neighbour", "notre voisin", 1, True), Subject("the old woman", "la vieille femme", 1, True),
    Subject("the little girl", "la petite fille", 1, True), Subject("a young man", "un jeune homme", 1, True),
    Subject("the children", "les enfants", 4, False), Subject("my friends", "mes amis", 4, False),
    Subject("the farmers", "les paysans", 4, False), Subject("the sailors", "les marins", 4, False),
]  # fmt: skip
PRONOUNS = [
    Subject("I", "je", 0, False), Subject("he", "il", 1, True), Subject("she", "elle", 1, True),
    Subject("we", "nous", 2, False), Subject("you", "vous", 3, False), Subject("they", "ils", 4, False),
]  # fmt: skip
PLACES = [
    Pair("in the garden", "dans le jardin"), Pair("near the river", "près de la rivière"),
    Pair("at the market", "au marché"), Pair("at school", "à l'école"), Pair("in the kitchen", "dans la cuisine"),
    Pair("under the old bridge", "sous le vieux pont"), Pair("in front of the church", "devant l'église"),
    Pair("behind the station", "derrière la gare"), Pair("on the beach", "sur la plage"),
    Pair("in our village", "dans notre village"),
]  # fmt: skip
TIMES = {
    "present": [
        Pair("every day", "chaque jour"), Pair("in the morning", "le matin"), Pair("on Sundays", "le dimanche"),
        Pair("in winter", "en hiver"), Pair("at noon", "à midi"),
    ],
    "past": [
        Pair("yesterday", "hier"), Pair("last night", "hier soir"), Pair("two days ago", "il y a deux jours"),
        Pair("last year", "l'année dernière"), Pair("last week", "la semaine dernière"),
    ],
    "future": [
        Pair("tomorrow", "demain"), Pair("next week", "la semaine prochaine"), Pair("tonight", "ce soir"),
        Pair("on Monday", "lundi"), Pair("in three days", "dans trois jours"),
    ],
}  # fmt: skip
NUMBERS = [Pair("two", "deux"), Pair("three", "trois"), Pair("five", "cinq"), Pair("ten", "dix")]
FUTURE_ENDINGS = ("ai", "a", "ons", "ez", "ont")
HAVE = ("ai", "a", "avons", "avez", "ont")
PHRASES = [
    Pair("Good morning, my friend.", "Bonjour, mon ami."),
    Pair("Thank you very much, madam.", "Merci beaucoup, madame."),
    Pair("Until tomorrow, my friends!", "À demain, mes amis !"), Pair("It is raining today.", "Il pleut aujourd'hui."),
    Pair("It is very cold.", "Il fait très froid."), Pair("What time is it?", "Quelle heure est-il ?"),
    Pair("Close the door, please.", "Fermez la porte, s'il vous plaît."), Pair("I do not know.", "Je ne sais pas."),
    Pair("We are late again.", "Nous sommes encore en retard."), Pair("My name is Anne.", "Je m'appelle Anne."),
]  # fmt: skip


def vowel(word: str) -> bool:
    """Whether French elides before `word`; every h of this vocabulary is mute."""
    return unicodedata.normalize("NFD", word)[0].lower() in "aeiouœh"


def joined(short: str, word: str) -> str:
    """`je`, `ne`, `que`, `le`, `la` and the word after it, elided where it must be."""
    return f"{short[:-1]}'{word}" if vowel(word) else f"{short} {word}"


def article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def described(noun: Noun, adjective: Adjective | None, plural: bool) -> Pair:
    """Noun and adjective, in the order of each language."""
    en, fr = (noun.ens, noun.frs) if plural else (noun.en, noun.fr)
    if adjective is None:
        return Pair(en, fr)
    form = agreed(adjective, noun, plural)
    if adjective.first and adjective.vowel and not plural and not noun.fem and vowel(noun.fr):
        form = adjective.vowel
    return Pair(f"{adjective.en} {en}", f"{form} {fr}" if adjective.first else f"{fr} {form}")


def agreed(adjective: Adjective, noun: Noun, plural: bool) -> str:
    if noun.fem:
        return adjective.fs if plural else adjective.f
    return adjective.ms if plural else adjective.m


def participle(verb: Verb, noun: Noun, plural: bool) -> str:
    """Agreement with an object that stands before: la maison que j'ai vendue."""
    form = verb.participle + ("e" if noun.fem else "")
    return form + "s" if plural and not form.endswith("s") else form


def definite(phrase: str, noun: Noun, plural: bool) -> str:
    if plural:
        return f"les {phrase}"
    return joined("la" if noun.fem else "le", phrase)


def sentence(pair: Pair, mark: str = ".") -> Pair:
    """Capital and full stop; French sets a space before ? and !."""
    en, fr = (side[0].upper() + side[1:] for side in pair)
    return Pair(en + mark, fr + (mark if mark == "." else f" {mark}"))


class Grammar:
    """Draws phrases; all that is random comes from one seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def thing(self, *, certain: bool = False) -> Pair:
        """An object; a `certain` one has no indefinite article, which a negation would change to `de`."""
        noun, plural = self.draw.choice(NOUNS), self.draw.random() < 0.3
        adjective = self.draw.choice(ADJECTIVES) if self.draw.random() < 0.5 else None
        en, fr = described(noun, adjective, plural)
        kind = self.draw.choice(["the", "my", "this"] if certain else ["the", "the", "my", "this", "a"])
        if kind == "the":
            return Pair(f"the {en}", definite(fr, noun, plural))
        if kind == "my":
            owner = "mes" if plural else "ma" if noun.fem and not vowel(fr) else "mon"
            return Pair(f"my {en}", f"{owner} {fr}")
        if kind == "this":
            near = "ces" if plural else "cette" if noun.fem else "cet" if vowel(fr) else "ce"
            return Pair(f"{'these' if plural else 'this'} {en}", f"{near} {fr}")
        if plural:
            number = self.draw.choice(NUMBERS)
            return Pair(f"{number.en} {en}", f"{number.fr} {fr}")
        return Pair(article(en), f"{'une' if noun.fem else 'un'} {fr}")

    def subject(self) -> Subject:
        return self.draw.choice(PRONOUNS if self.draw.random() < 0.4 else PEOPLE)

    def does(self, who: Subject, verb: Verb, tense: str, *, no: bool = False) -> Pair:
        """Subject and verb."""
        match tense:
            case "present":
                en, fr, tail = (verb.ens if who.third else verb.en), verb.present[who.person], ""
                if no:
                    en = f"{'does' if who.third else 'do'} not {verb.en}"
            case "past":
                en, fr, tail = verb.past, HAVE[who.person], f" {verb.participle}"
                if no:
                    en = f"did not {verb.en}"
            case _:
                en, fr, tail = (
                    f"will{' not' if no else ''} {verb.en}",
                    verb.future + FUTURE_ENDINGS[who.person],
                    "",
                )
        if no:
            fr = f"{joined('ne', fr)} pas"
        return Pair(f"{who.en} {en}", self._led(who, fr) + tail)

    def _led(self, who: Subject, fr: str) -> str:
        return joined("je", fr) if who.fr == "je" else f"{who.fr} {fr}"

    def clause(self, tense: str, *, no: bool = False, acts: float = 0.6) -> Pair:
        """Somebody acts on something (with the probability `acts`), or does something somewhere."""
        who = self.subject()
        if self.draw.random() < acts:
            left, right = self.does(who, self.draw.choice(ACTIONS), tense, no=no), self.thing(certain=no)
        else:
            left, right = self.does(who, self.draw.choice(STATES), tense, no=no), self.draw.choice(PLACES)
        return Pair(f"{left.en} {right.en}", f"{left.fr} {right.fr}")

    def plain(self) -> Pair:
        tense = self.draw.choice(list(TIMES))
        pair = self.clause(tense, no=self.draw.random() < 0.2)
        if self.draw.random() < 0.5:
            when = self.draw.choice(TIMES[tense])
            pair = Pair(f"{pair.en} {when.en}", f"{pair.fr} {when.fr}")
        return sentence(pair)

    def brief(self) -> Pair:
        tense = self.draw.choice(list(TIMES))
        left, when = (
            self.does(self.subject(), self.draw.choice(STATES), tense),
            self.draw.choice(TIMES[tense]),
        )
        return sentence(Pair(f"{left.en} {when.en}", f"{left.fr} {when.fr}"))

    def compound(self) -> Pair:
        tense = self.draw.choice(list(TIMES))
        first, second = self.clause(tense), self.clause(tense, no=self.draw.random() < 0.3)
        en, fr = self.draw.choice([("and", "et"), ("but", "mais"), ("because", "parce que")])
        join = joined("parce que", second.fr) if fr == "parce que" else f"{fr} {second.fr}"
        return sentence(Pair(f"{first.en} {en} {second.en}", f"{first.fr} {join}"))

    def said(self) -> Pair:
        left = self.does(self.subject(), SAY, "present")
        tense = self.draw.choice(list(TIMES))
        inner, when = self.clause(tense), self.draw.choice(TIMES[tense])
        return sentence(
            Pair(f"{left.en} that {inner.en} {when.en}", f"{left.fr} {joined('que', inner.fr)} {when.fr}")
        )

    def quality(self) -> Pair:
        noun, plural = self.draw.choice(NOUNS), self.draw.random() < 0.4
        adjective, very = (
            self.draw.choice(ADJECTIVES),
            self.draw.choice([Pair("", ""), Pair("very ", "très ")]),
        )
        en = f"the {noun.ens if plural else noun.en} {'are' if plural else 'is'} {very.en}{adjective.en}"
        phrase = definite(noun.frs if plural else noun.fr, noun, plural)
        return sentence(
            Pair(en, f"{phrase} {'sont' if plural else 'est'} {very.fr}{agreed(adjective, noun, plural)}")
        )

    def there(self) -> Pair:
        noun, number, place = self.draw.choice(NOUNS), self.draw.choice(NUMBERS), self.draw.choice(PLACES)
        en, fr = described(noun, self.draw.choice([None, *ADJECTIVES]), True)
        return sentence(Pair(f"there are {number.en} {en} {place.en}", f"il y a {number.fr} {fr} {place.fr}"))

    def question(self) -> Pair:
        verb, what = self.draw.choice(ACTIONS), self.thing(certain=True)
        match self.draw.randrange(3):
            case 0:
                return sentence(Pair(f"do you {verb.en} {what.en}", f"{verb.present[3]}-vous {what.fr}"), "?")
            case 1:
                return sentence(Pair(f"who {verb.past} {what.en}", f"qui a {verb.participle} {what.fr}"), "?")
            case _:
                who = self.draw.choice(PEOPLE)
                en = f"why does {who.en}" if who.third else f"why do {who.en}"
                fr = f"pourquoi est-ce {joined('que', who.fr)}"
                return sentence(
                    Pair(f"{en} {verb.en} {what.en}", f"{fr} {verb.present[who.person]} {what.fr}"), "?"
                )

    def modal(self) -> Pair:
        who, modal, verb = self.subject(), self.draw.choice(MODALS), self.draw.choice(ACTIONS)
        en, fr = (modal.ens if who.third else modal.en), self._led(who, modal.present[who.person])
        what, where = self.thing(), self.draw.choice([Pair("", ""), *PLACES])
        pair = Pair(
            f"{who.en} {en} {verb.en} {what.en} {where.en}", f"{fr} {verb.infinitive} {what.fr} {where.fr}"
        )
        return sentence(Pair(pair.en.strip(), pair.fr.strip()))

    def relative(self) -> Pair:
        noun, plural = self.draw.choice(NOUNS), self.draw.random() < 0.4
        who, verb, adjective = self.subject(), self.draw.choice(ACTIONS), self.draw.choice(ADJECTIVES)
        acted = self._led(who, HAVE[who.person])
        when = self.draw.choice(TIMES["past"])
        en = f"the {noun.ens if plural else noun.en} that {who.en} {verb.past} {when.en}"
        fr = f"{definite(noun.frs if plural else noun.fr, noun, plural)} {joined('que', acted)}"
        fr = f"{fr} {participle(verb, noun, plural)} {when.fr}"
        is_en, is_fr = ("are", "sont") if plural else ("is", "est")
        return sentence(
            Pair(f"{en} {is_en} {adjective.en}", f"{fr} {is_fr} {agreed(adjective, noun, plural)}")
        )

    def exclamation(self) -> Pair:
        noun = self.draw.choice(NOUNS)
        en, fr = described(noun, self.draw.choice([each for each in ADJECTIVES if each.first]), False)
        return sentence(Pair(f"what {article(en)}", f"{'quelle' if noun.fem else 'quel'} {fr}"), "!")

    def long(self) -> Pair:
        """Two clauses and a time in front: the longest sentences."""
        tense = self.draw.choice(list(TIMES))
        when, place = self.draw.choice(TIMES[tense]), self.draw.choice(PLACES)
        first, second, third = self.clause(tense), self.clause(tense), self.clause(tense, acts=1)
        en = f"{when.en} {first.en}, {second.en} and {third.en} {place.en}"
        return sentence(Pair(en, f"{when.fr} {first.fr}, {second.fr} et {third.fr} {place.fr}"))

    def sentences(self) -> Iterator[Pair]:
        """Every kind, for ever."""
        yield from PHRASES
        kinds: list[Callable[[], Pair]] = [
            self.plain, self.plain, self.brief, self.compound, self.compound, self.said, self.quality, self.quality,
            self.there, self.question, self.question, self.modal, self.modal, self.relative, self.exclamation,
            self.long,
        ]  # fmt: skip
        while True:
            yield self.draw.choice(kinds)()


BODY = [
    ("knee", "du genou", False), ("shoulder", "de l'épaule", True), ("hand", "de la main", True),
    ("foot", "du pied", False), ("eye", "de l'œil", False), ("lung", "du poumon", False), ("hip", "de la hanche", True),
    ("elbow", "du coude", False), ("ear", "de l'oreille", True), ("kidney", "du rein", False),
]  # fmt: skip
DISEASES = [
    ("inflammation", "inflammation", True), ("fracture", "fracture", True), ("infection", "infection", True),
    ("pain", "douleur", True), ("tumour", "tumeur", True), ("disease", "maladie", True), ("injury", "blessure", True),
]  # fmt: skip
COURSES = [("chronic", "chronique"), ("acute", "aiguë"), ("mild", "légère"), ("severe", "grave"), ("", "")]
WEATHERS = [
    ("light rain", "pluie faible"), ("heavy snow", "neige abondante"), ("dense fog", "brouillard dense"),
    ("strong winds", "vents forts"), ("scattered showers", "averses éparses"), ("clear skies", "ciel dégagé"),
]  # fmt: skip
REGIONS = [
    ("over the northern coast", "sur la côte nord"), ("in the southern valleys", "dans les vallées du sud"),
    ("along the western border", "le long de la frontière ouest"),
    ("above the central plains", "sur les plaines du centre"),
]  # fmt: skip


def other(seed: int) -> Iterator[Pair]:
    """Another register: diagnoses and weather reports, without verbs."""
    draw = random.Random(seed)
    while True:
        if draw.random() < 0.5:
            (part, of_part, fem), (what, fr, _) = draw.choice(BODY), draw.choice(DISEASES)
            course, course_fr = draw.choice(COURSES)
            side, side_fr = draw.choice(
                [("left", "gauche"), ("right", "droite" if fem else "droit"), ("", "")]
            )
            en = f"{course} {what} of the {side} {part}"
            yield _tidy(en, f"{fr} {course_fr} {of_part} {side_fr}")
        else:
            (sky, sky_fr), (where, where_fr) = draw.choice(WEATHERS), draw.choice(REGIONS)
            degrees = draw.randrange(-9, 31)
            en = f"{sky} {where}, {degrees} degree{'' if degrees == 1 else 's'}"
            yield _tidy(en, f"{sky_fr} {where_fr}, {degrees} degré{'' if abs(degrees) < 2 else 's'}")


def _tidy(en: str, fr: str) -> Pair:
    return Pair(*(side[0].upper() + side[1:] for side in (" ".join(en.split()), " ".join(fr.split()))))


def unique(pairs: Iterator[Pair], count: int) -> list[Pair]:
    """The first `count` pairs of 3 to 25 words of which neither side was there before."""
    seen: set[str] = set()
    kept: list[Pair] = []
    while len(kept) < count:
        pair = next(pairs)
        if not seen & set(pair) and all(3 <= len(side.split()) <= 25 for side in pair):
            seen |= set(pair)
            kept.append(pair)
    return kept


class Dirt(NamedTuple):
    """A line to add before line `at` (from 0), made of the clean pair there, or of an earlier one."""

    at: int
    why: str
    change: Callable[[Pair], Pair]
    earlier: int = 0  # lines back


DIRTY = [
    Dirt(560, "empty", lambda pair: Pair("", pair.fr)),
    Dirt(540, "empty", lambda pair: Pair("  \t ", pair.fr)),
    Dirt(500, "empty", lambda pair: Pair(pair.en, "")),
    Dirt(450, "duplicate", lambda pair: pair, 300),
    Dirt(400, "duplicate", lambda pair: pair, 1),
    Dirt(350, "duplicate", lambda pair: Pair(pair.en.replace(" ", "  "), pair.fr), 190),
    Dirt(300, "duplicate", lambda pair: Pair(*(unicodedata.normalize("NFD", side) for side in pair)), 90),
    Dirt(250, "duplicate", lambda pair: Pair(pair.en + "\x07", "\ufeff" + pair.fr), 50),
    Dirt(200, "duplicate", lambda pair: Pair(" " + pair.en, pair.fr + " "), 30),
]
"""Lines that leave nothing when cleaned: an empty side, or what stands elsewhere already."""

MENDED: dict[int, Callable[[Pair], Pair]] = {
    20: lambda pair: Pair(pair.en.replace(" ", "  "), pair.fr),
    60: lambda pair: Pair(pair.en.replace(" ", "\t", 1), pair.fr),
    120: lambda pair: Pair(pair.en, pair.fr.replace(" ", "\u2028", 1)),
    160: lambda pair: Pair(pair.en, unicodedata.normalize("NFD", pair.fr)),
    220: lambda pair: Pair(pair.en.replace(" ", "\x1b ", 1), pair.fr + "\x07"),
}
"""Lines (from 0, before the dirt is added) that cleaning restores."""


def smoke() -> list[Pair]:
    """The lines of smoke.en and smoke.fr."""
    clean = unique(Grammar(SEED).sentences(), PAIRS)
    draw = random.Random(SEED)
    draw.shuffle(clean)
    lines = [MENDED[at](pair) if at in MENDED else pair for at, pair in enumerate(clean)]
    for dirt in DIRTY:  # from the end, so that places stay right
        lines.insert(dirt.at, dirt.change(clean[dirt.at - dirt.earlier]))
    return lines


def files() -> dict[str, str]:
    """Name and text of each file. A key names a line for good: it is what the held-out lines are drawn by."""
    out: dict[str, str] = {}
    for name, pairs in (("smoke", smoke()), ("smoke-other", unique(other(SEED), OTHER_PAIRS))):
        out[f"{name}.en"] = "".join(f"{pair.en}\n" for pair in pairs)
        out[f"{name}.fr"] = "".join(f"{pair.fr}\n" for pair in pairs)
    out["smoke.key"] = "".join(f"s{number:04}\n" for number in range(out["smoke.en"].count("\n")))
    return out


if __name__ == "__main__":
    for name, text in files().items():
        (PROFILES / name).write_bytes(text.encode())
