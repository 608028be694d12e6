//! Pages of work: jobs are started, data is looked at, pipelines are tried.

use std::fs;

use serde_json::Value;
use stokehold_jobs::Store;
use stokehold_studio::Options;

use super::{axe, browser, look};
use crate::data::{HOSTILE, photos};
use crate::results::write_results;
use crate::start::with_job_file;
use crate::{Running, within};

#[test]
fn pages_of_work_are_right_on_large_and_small_screens_light_and_dark() {
    let Some(browser) = browser() else { return };
    let axe = axe();
    let (dir, options) = with_job_file();
    write_results(&dir.path().join("runs"));
    let (_photos, data) = photos();
    let studio = Running::of(Options {
        data: vec![data],
        ..options
    });
    browser.go(&studio.link);
    browser.until("the first page", "document.querySelector('main [data-all]')");
    let host = format!("http://{}", studio.address);
    let flaw = "document.querySelector('#fault .why')";
    let pages = [
        ("start-form", "/start?by=form", flaw),
        (
            "start-text",
            "/start?file=runs/flowers/job.toml&by=text",
            "document.querySelector('#fault .fine')",
        ),
        (
            "start-file-form",
            "/start?file=runs/flowers/job.toml&by=form",
            "document.querySelector('#fault .fine')",
        ),
        (
            "results",
            "/results",
            "document.querySelectorAll('main ul.rows a').length === 2",
        ),
        (
            "result-storage",
            "/results?file=runs/storage.json",
            "document.querySelector('main table')",
        ),
        (
            "result-scale",
            "/results?file=runs/scale.json",
            "document.querySelector('main table')",
        ),
        (
            "data-folder",
            "/data?key=data",
            "document.querySelector('main ul.rows')",
        ),
        (
            "data",
            "/data?key=data/flowers",
            "document.querySelectorAll('.thumb img').length > 5 && document.querySelector('.thumb .why')",
        ),
        (
            "workbench",
            "/workbench?key=data/flowers&part=train&sample=1",
            "document.querySelectorAll('.trio img').length === 12 && document.querySelector('.thumb img')",
        ),
    ];
    let mut faults = Vec::new();
    for (width, height) in [(1440, 900), (390, 844)] {
        for scheme in ["light", "dark"] {
            browser.screen(width, height, scheme);
            for (name, path, ready) in pages {
                browser.go(&format!("{host}{path}"));
                browser.until(name, ready);
                // What is closed is looked at, too.
                if name == "start-form" || name == "workbench" {
                    browser.run("document.querySelectorAll('details.more, ol.ops details').forEach((one) => { one.open = true; })");
                }
                faults.extend(look(
                    &browser,
                    axe.as_deref(),
                    &format!("{name}-{width}-{scheme}"),
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    browser.no_faults();
}

/// Types into a field, as a person does.
fn fill(browser: &super::Browser, selector: &str, text: &str) {
    let script = format!(
        "const field = document.querySelector({}); field.focus(); field.value = {}; field.dispatchEvent(new Event('input', {{ bubbles: true }}))",
        Value::from(selector),
        Value::from(text)
    );
    browser.run(&script);
}

/// Clicks on what may be under the bar at the top, where a person would scroll.
fn click(browser: &super::Browser, selector: &str) {
    browser.run(&format!(
        "document.querySelector({}).scrollIntoView({{ block: 'center' }})",
        Value::from(selector)
    ));
    browser.click(selector);
}

#[test]
fn a_job_is_started_by_the_form_and_cloned_and_faults_are_shown_where_they_are() {
    let Some(browser) = browser() else { return };
    let (dir, options) = with_job_file();
    let store = Store::new(options.jobs.as_ref().unwrap()).unwrap();
    let studio = Running::of(options);
    browser.go(&studio.link);
    browser.until("the first page", "document.querySelector('main [data-all]')");
    browser.keys("gn");
    browser.until(
        "what is missing",
        "location.pathname === '/start' && document.getElementById('f.entry-point')?.getAttribute('aria-invalid') === 'true' && document.getElementById('start').disabled",
    );
    fill(&browser, "[id='f.entry-point']", "train.sh");
    let folder = dir.path().join("runs/flowers");
    fill(&browser, "[id='f.source-dir']", folder.to_str().unwrap());
    browser.run("document.querySelector('details.more').open = true");
    fill(&browser, "[id='f.instances']", "65");
    browser.until(
        "the fault at its field",
        "document.getElementById('f.instances').getAttribute('aria-invalid') === 'true' && document.querySelector('#fault .why').textContent.includes('65')",
    );
    fill(&browser, "[id='f.instances']", "1");
    browser.run("for (const name of ['opt-ml', 'profile']) { const box = document.getElementById(`f.${name}`); if (box.checked) box.click(); }");
    browser.until(
        "it is fine",
        "document.querySelector('#fault .fine') && !document.getElementById('start').disabled",
    );
    // As a file it is what the form says.
    click(&browser, "#by-text");
    browser.until(
        "the file",
        "document.getElementById('text')?.value.includes('opt-ml = false')",
    );
    let text = browser.run("return document.getElementById('text').value");
    let text = text.as_str().unwrap();
    assert!(
        !text.contains("instance-type") && text.contains("entry-point = \"train.sh\""),
        "{text}"
    );
    fill(&browser, "#text", &format!("{text}[hyperparameters]\nlr = \n"));
    browser.until(
        "a fault with its line",
        "document.querySelector('#fault .why')?.textContent.includes('line ')",
    );
    fill(
        &browser,
        "#text",
        &format!("{text}[hyperparameters]\nlr = 0.25\n"),
    );
    browser.until(
        "it is fine again",
        "document.querySelector('#fault .fine') && !document.getElementById('start').disabled",
    );
    click(&browser, "#start");
    browser.until(
        "the job's page",
        "location.pathname === '/run' && document.querySelector('.log .line')?.textContent.includes('rate=0.25')",
    );
    browser.until(
        "its end",
        "document.querySelector('.head .state')?.textContent.includes('finished')",
    );
    click(&browser, "#clone");
    browser.until(
        "its settings",
        "document.getElementById('f.hyperparameters.lr')?.value === '0.25'",
    );
    fill(&browser, "[id='f.hyperparameters.lr']", "0.5");
    browser.until(
        "the copy is fine",
        "document.querySelector('#fault .fine') && !document.getElementById('start').disabled",
    );
    browser.picture("clone");
    click(&browser, "#start");
    browser.until(
        "the copy's page",
        "location.pathname === '/run' && document.querySelector('.log .line')?.textContent.includes('rate=0.5')",
    );
    let records = store.list().unwrap();
    assert_eq!(records.len(), 2, "{records:?}");
    within("both have ended", || {
        store
            .list()
            .unwrap()
            .iter()
            .all(|record| record.status.is_final())
            .then_some(())
    });
    browser.no_faults();
}

#[test]
fn data_is_examined_and_a_pipeline_is_tried_and_copied() {
    let Some(browser) = browser() else { return };
    let (_photos, data) = photos();
    let studio = Running::of(crate::data::options(&data, false));
    browser.go(&studio.link);
    browser.until("the first page", "document.querySelector('main [data-all]')");
    browser.keys("gd");
    browser.until(
        "the folder",
        "location.search.includes('key=data') && document.querySelector('ul.rows a')",
    );
    browser.run(
        "[...document.querySelectorAll('ul.rows a')].find((link) => link.textContent === 'flowers').click()",
    );
    browser.until("samples", "document.querySelectorAll('.thumb img').length > 5");
    // A class with markup in its name.
    browser.run(&format!(
        "const choice = document.getElementById('class'); choice.value = [...choice.options].find((one) => one.textContent === {}).value; choice.dispatchEvent(new Event('change'))",
        Value::from(HOSTILE)
    ));
    browser.until("its one sample", "document.querySelectorAll('ul.samples li').length === 1 && location.search.includes('class=0') && document.querySelector('.thumb .why')");
    click(&browser, "#examine");
    browser.until(
        "the report",
        "document.getElementById('verdict')?.textContent.includes('1 of 13')",
    );
    assert_eq!(browser.run("return window.hacked ?? null"), Value::Null);
    browser.picture("data-examined");
    let address = browser.run("return location.href");
    browser.go(address.as_str().unwrap());
    browser.until(
        "the same after a reload",
        "document.querySelectorAll('ul.samples li').length === 1 && document.getElementById('verdict')",
    );
    browser.run("const choice = document.getElementById('class'); choice.value = ''; choice.dispatchEvent(new Event('change'))");
    browser.until("all again", "document.querySelectorAll('.thumb img').length > 5");
    browser.run("document.querySelector('.thumb img').closest('a').click()");
    browser.until("draws", "document.querySelectorAll('.trio img').length === 12");
    browser.run("const add = document.getElementById('add'); add.value = 'ColorJitter'; add.dispatchEvent(new Event('change'))");
    browser.until("the operation", "location.search.includes('ColorJitter') && [...document.querySelectorAll('ol.ops b')].some((one) => one.textContent === 'ColorJitter')");
    fill(&browser, "[id='op2.hue']", "0.9");
    browser.until(
        "what is allowed",
        "document.getElementById('problem').textContent.includes('allowed')",
    );
    fill(&browser, "[id='op2.hue']", "0.4");
    browser.until("draws again", "document.getElementById('problem').textContent === '' && document.querySelectorAll('.trio img').length === 12");
    click(&browser, "#copy-python");
    browser.until(
        "Python",
        "document.getElementById('copied').value.includes('T.ColorJitter(hue=0.4)')",
    );
    click(&browser, "#copy-toml");
    browser.until(
        "TOML",
        "document.getElementById('copied').value.includes('type = \"ColorJitter\"')",
    );
    browser.picture("workbench-copied");
    fs::remove_dir_all(data.join("flowers")).unwrap();
    browser.no_faults();
}
