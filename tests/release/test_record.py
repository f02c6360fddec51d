"""The sheet along NIST SP 800-226 and the entry of the registry: from the manifest, and nothing invented."""

from __future__ import annotations

import json
import re

import pytest

import hushquery as hq
from commands import answer
from hushquery.errors import UsageError
from hushquery.release import page as page_module
from hushquery.release.record import nist_sheet, nist_text, registry_entries, registry_text
from small_releases import private_hybrid, thresholded, whole_release

ABOUT = hq.Description("A week", "Example Library", "CC0-1.0", "2026-11-02..2026-11-08", "a@example.org", 2500)
# The fields of an entry, as the registry's own template of 2026 has them; evidence is the submitter's.
FIELDS = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}


def described(release, about=ABOUT):
    release.manifest["description"] = about.to_json()
    return release


@pytest.mark.parametrize("make", [whole_release, private_hybrid])
def test_an_entry_has_the_fields_of_the_registry_and_no_others(make):
    release = make()
    entries = registry_entries(release)
    assert len(entries) == len(release.guarantees)
    for entry, guarantee in zip(entries, release.guarantees, strict=True):
        assert set(entry) == {"url_slug", "deployment"}
        assert set(entry["deployment"]) == set(FIELDS)
        for part, fields in FIELDS.items():
            missing = set(fields.split()) - set(entry["deployment"][part])
            assert missing <= {"evidence_sources"}
            assert not set(entry["deployment"][part]) - set(fields.split())
        loss = entry["deployment"]["privacy_loss"]
        assert loss["privacy_parameters"]["epsilon"] == guarantee.epsilon
        assert loss["privacy_parameters"].get("delta", 0) == guarantee.delta
        central = guarantee.model == "curator"
        assert entry["deployment"]["deployment_model"]["model_name"] == ("Central" if central else "Local")
        assert loss["privacy_unit"] == ("user-level" if central else "client-level")


def test_what_is_not_stated_says_how_to_state_it_and_what_is_stated_is_said():
    bare, full = json.dumps(nist_sheet(whole_release())), json.dumps(nist_sheet(described(whole_release())))
    for option in ("--title", "--publisher", "--licence", "--period", "--contact", "--users"):
        assert f"not stated (state it with {option}" in bare
        assert option not in full
    for word in ("A week", "Example Library", "CC0-1.0", "2026-11-02 to 2026-11-08", "a@example.org", "2,500"):
        assert word in full
        assert word not in bare
    for unknown in ("data security and access control", "data collection exposure"):
        assert nist_sheet(described(whole_release()))[unknown].startswith("not stated")
    [entry] = registry_entries(described(whole_release()))
    basic = entry["deployment"]["basic"]
    assert basic["data_curators"][0]["data_curator_name"] == "Example Library"
    for field in ("intended_use", "data_product_region", "data_product_sector"):
        assert basic[field].startswith("not stated")
    assert entry["deployment"]["implementation"]["justification"].startswith("not stated")


def test_a_hybrid_has_two_guarantees_and_never_one_number():
    sheet = nist_sheet(private_hybrid())
    [optin, clients] = sheet["guarantees"]
    assert optin["trust model"].startswith("central")
    assert clients["trust model"].startswith("local")
    for one in (optin, clients):
        assert one["relation"].startswith("replace-one (bounded)")
        assert "is not hidden" in one["relation"]
    text = nist_text(private_hybrid())
    assert text.count("## The guarantee for") == 2
    assert registry_text(private_hybrid()).count("\n- `deployment.privacy_loss.privacy_parameters.epsilon`") == 2


def test_the_number_of_opt_in_users_is_not_called_protected():
    release = private_hybrid()
    release.manifest["parameters"]["optin_users"] = 800
    assert "800" in nist_sheet(release)["algorithms"]["published without noise"][0]
    assert "800" in registry_entries(release)[0]["deployment"]["dp_variant"]["unprotected_quantities"]


def test_several_steps_are_composed():
    from fractions import Fraction

    from hushquery.core.loss import LaplaceHistogram

    release = thresholded({"news": 900}, LaplaceHistogram(2, Fraction(40), 800), {("news", "https://a.example/"): 900})
    [one] = nist_sheet(release)["guarantees"]
    assert one["composition in this release"].startswith("2 steps")
    assert len(one["mechanisms"]) == 2
    assert all(step.startswith("discrete Laplace noise: ") for step in one["mechanisms"])


def test_test_noise_is_no_deployment():
    release = whole_release(test_noise=True)
    with pytest.raises(UsageError, match="no deployment"):
        registry_entries(release)
    sheet = nist_sheet(release)
    assert sheet["warnings"]
    assert sheet["guarantees"][0]["variant"].startswith("none")
    assert "operating system" not in json.dumps(sheet)


def test_the_command(tmp_path):
    folder = described(whole_release()).save(tmp_path / "release")
    code, card, _ = answer("card", folder)
    assert code == 0
    assert card.rstrip() == (folder / "README.md").read_text("utf-8").rstrip()
    code, sheet, _ = answer("card", folder, "--nist")
    assert code == 0
    assert sheet.startswith("# Evaluation sheet: NIST SP 800-226")
    code, data, _ = answer("card", folder, "--nist", "--json")
    assert json.loads(data) == nist_sheet(hq.Release.load(folder))
    code, data, _ = answer("card", folder, "--registry", "--json")
    assert json.loads(data) == registry_entries(hq.Release.load(folder))[0]
    assert answer("card", folder, "--nist", "--registry")[0] == 2
    hybrid = private_hybrid().save(tmp_path / "hybrid")
    assert len(json.loads(answer("card", hybrid, "--registry", "--json")[1])["entries"]) == 2
    assert answer("card", tmp_path / "nothing", "--nist")[0] == 4


def test_page_and_card_name_what_the_steward_described():
    release = described(whole_release())
    page, card = page_module.page(release), page_module.card(release)
    plain = " ".join(re.sub("<[^>]*>", "", page).split())
    assert "Cite it as: Example Library. A week, 2026-11-02 to 2026-11-08. " in plain
    assert "about 2,500 (declared)" in plain
    assert card.startswith("# A week, 2026-11-02 to 2026-11-08 (Example Library)\n\nSearch statistics of readers")
    assert page_module.card(whole_release()).startswith("# Search statistics of readers of example.org\n\nWhat people")
