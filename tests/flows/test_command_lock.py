"""`rnnsearch fetch` and `rnnsearch lock`: sources ahead of a run, and learned digests as pins for every store."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import pytest
from corpus_server import Site

from rnnsearch.flows.command_fetch import fetch_sources
from rnnsearch.flows.command_lock import lock_sources
from rnnsearch.flows.errors import UsageError
from rnnsearch.flows.settings import PROFILES, SettingsError, load_settings
from rnnsearch.flows.sources.checks import SourceError

OLD = b"one\ntwo\n"
NEW = b"one\nTWO\n"


class Home(NamedTuple):
    """A profile whose English text comes from a server."""

    site: Site
    profile: Path
    store: Path

    def fetch(self, *names: str, again: tuple[str, ...] = (), store: Path | None = None) -> None:
        place = str(store or self.store)
        fetch_sources(names, again, str(self.profile), [], place, as_json=True)

    def lock(self, *update: str, overrides: tuple[str, ...] = ()) -> None:
        lock_sources(update, str(self.profile), overrides, str(self.store), as_json=True)

    def pin(self, *overrides: str) -> tuple[str | None, int | None]:
        source = load_settings(str(self.profile), overrides).sources["lines-en"]
        return source.sha256, source.size


@pytest.fixture
def home(serve, own_profile: Path, tmp_path: Path) -> Home:
    site = serve(body=OLD)
    text = own_profile.read_text(encoding="utf-8")
    own_profile.write_text(
        text.replace('url = "smoke.en"', f'url = "{site.url("text.en")}"'), encoding="utf-8"
    )
    return Home(site, own_profile, tmp_path / "store")


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_sources_are_fetched_ahead_of_a_run_and_once(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.fetch("lines-en", "lines-fr")
    states = [(each["source"], each["state"]) for each in json.loads(capsys.readouterr().out)]
    assert states == [("lines-en", "fetched"), ("lines-fr", "fetched")]
    home.fetch("lines-en")
    (found,) = json.loads(capsys.readouterr().out)
    assert found == {
        "source": "lines-en",
        "state": "there",
        "sha256": digest(OLD),
        "bytes": len(OLD),
        "origin": home.site.url("text.en"),
    }
    assert len(home.site.seen) == 1


def test_a_source_that_is_fetched_again_is_said_to_have_changed_and_counts(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.fetch("lines-en")
    home.site.body = NEW
    home.fetch(again=("lines-en",))
    home.fetch("lines-en")
    told = capsys.readouterr()
    assert "lines-en: fetched, and other bytes than before" in told.err
    assert told.out.count(digest(NEW)) == 2


def test_a_source_that_the_profile_lacks_is_refused_with_those_it_has(home: Home) -> None:
    with pytest.raises(UsageError, match=r"no source 'lines'; it has lines-en, lines-fr"):
        home.fetch("lines")
    with pytest.raises(UsageError, match=r"no source 'lines'; it has lines-en, lines-fr"):
        home.lock("lines")


def test_a_lock_pins_what_was_learned_and_leaves_local_files_alone(home: Home) -> None:
    assert home.pin() == (None, None)
    home.fetch("lines-en")
    home.lock()
    assert home.pin() == (digest(OLD), len(OLD))
    assert len(home.site.seen) == 1, "the store knew the digest"
    assert list(load_settings(str(home.profile)).sources) == list(load_settings("smoke").sources)
    assert load_settings(str(home.profile)).sources["lines-fr"].sha256 is None
    home.fetch("lines-en")
    assert len(home.site.seen) == 1, "what was fetched under the address serves the pin"


def test_a_lock_of_what_was_never_fetched_fetches_it(home: Home) -> None:
    home.lock()
    assert home.pin() == (digest(OLD), len(OLD))


@pytest.mark.parametrize("body", [NEW, NEW + b"three\n"], ids=["same length", "longer"])
def test_another_store_notices_a_changed_upstream_and_names_the_command_that_accepts_it(
    home: Home, tmp_path: Path, body: bytes
) -> None:
    home.lock()
    home.site.body = body
    with pytest.raises(SourceError, match="the file changed there") as caught:
        home.fetch("lines-en", store=tmp_path / "other")
    assert "`rnnsearch lock --update lines-en`" in str(caught.value)
    home.lock()
    assert home.pin() == (digest(OLD), len(OLD)), "a lock does not give way by itself"
    home.lock("lines-en")
    assert home.pin() == (digest(body), len(body))
    home.fetch("lines-en", store=tmp_path / "other")


def test_transfers_that_differ_from_one_another_are_damage_and_no_change(home: Home, tmp_path: Path) -> None:
    home.lock()
    home.site.bodies = [b"0ne\ntwo\n", b"1ne\ntwo\n", b"2ne\ntwo\n"]
    with pytest.raises(SourceError, match="damaged on its way") as caught:
        home.fetch("lines-en", store=tmp_path / "other")
    assert "--update" not in str(caught.value)
    home.site.bodies = [b"0ne\ntwo\n"]
    home.fetch("lines-en", store=tmp_path / "other")


def test_a_lock_holds_for_the_address_that_it_was_made_for(home: Home, serve) -> None:
    home.lock()
    other = serve(body=NEW).url("text.en")
    assert home.pin(f"sources.lines-en.url='{other}'") == (None, None)
    mirrored = (f"sources.lines-en.url='{other}'", f"sources.lines-en.mirrors=['{home.site.url('text.en')}']")
    assert home.pin(*mirrored) == (digest(OLD), len(OLD))


def test_the_profiles_own_digest_is_above_the_lock(home: Home) -> None:
    home.lock()
    assert home.pin(f"sources.lines-en.sha256='{'0' * 64}'")[0] == "0" * 64
    with pytest.raises(UsageError, match="the profile has its sha256"):
        home.lock("lines-en", overrides=(f"sources.lines-en.sha256='{'0' * 64}'",))
    with pytest.raises(UsageError, match="file of this machine"):
        home.lock("lines-fr")


@pytest.mark.parametrize("text", ["= =", "sources = 3", "[sources.lines-en]\nsha256 = 'x'", "\ufeffa"])
def test_a_damaged_lock_is_refused_with_what_to_do(home: Home, text: str) -> None:
    home.profile.with_suffix(".lock").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"smoke\.lock.*remove it and run `rnnsearch lock`"):
        home.pin()
    with pytest.raises(SettingsError, match=r"smoke\.lock"):
        home.lock()


def test_a_profile_of_the_package_is_not_locked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"copy .*smoke\.toml"):
        lock_sources((), "smoke", [], str(tmp_path / "store"), as_json=False)
    assert not list(PROFILES.glob("*.lock"))


def test_a_lock_names_its_sources_whatever_their_names(home: Home) -> None:
    text = home.profile.read_text(encoding="utf-8")
    odd = 'été "1".x'
    quoted = json.dumps(odd, ensure_ascii=False)
    text += f'\n[sources.{quoted}]\nurl = "{home.site.url("odd.en")}"\n'
    home.profile.write_text(text, encoding="utf-8")
    home.lock()
    assert load_settings(str(home.profile)).sources[odd].sha256 == digest(OLD)
