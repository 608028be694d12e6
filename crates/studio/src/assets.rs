//! The files of the pages, which are in the program.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use axum::response::Response;
use stokehold_base::hash::Fnv;
use stokehold_diagnose::report;
use stokehold_page::html;

/// The page: a frame that the modules fill.
pub const SHELL: &str = include_str!("../assets/index.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The modules.
const MODULES: [(&str, &str); 18] = [
    ("app.js", include_str!("../assets/app.js")),
    ("chart.js", include_str!("../assets/chart.js")),
    ("compare.js", include_str!("../assets/compare.js")),
    ("data.js", include_str!("../assets/data.js")),
    ("dom.js", include_str!("../assets/dom.js")),
    ("form.js", include_str!("../assets/form.js")),
    ("home.js", include_str!("../assets/home.js")),
    ("machine.js", include_str!("../assets/machine.js")),
    ("net.js", include_str!("../assets/net.js")),
    ("notes.js", include_str!("../assets/notes.js")),
    ("results.js", include_str!("../assets/results.js")),
    ("run.js", include_str!("../assets/run.js")),
    ("runs.js", include_str!("../assets/runs.js")),
    ("start.js", include_str!("../assets/start.js")),
    ("studies.js", include_str!("../assets/studies.js")),
    ("study.js", include_str!("../assets/study.js")),
    ("workbench.js", include_str!("../assets/workbench.js")),
    // The report's own.
    ("heat.js", report::HEAT),
];

/// The style: that of all pages, of the reports, and the studio's.
const STYLES: [&str; 5] = [
    html::STYLE,
    report::STYLE,
    stokehold_trials::report::STYLE,
    include_str!("../assets/studio.css"),
    include_str!("../assets/work.css"),
];

/// A file by its name; `None` if there is none.
pub fn asset(name: &str, headers: &HeaderMap) -> Option<Response> {
    if name == "studio.css" {
        return Some(answer(STYLE, STYLES.concat(), headers));
    }
    let (_, text) = MODULES.iter().find(|(own, _)| *own == name)?;
    Some(answer(SCRIPT, (*text).to_owned(), headers))
}

fn answer(kind: &'static str, text: String, headers: &HeaderMap) -> Response {
    let tag = format!("\"{:016x}\"", Fnv::of(text.as_bytes()));
    let is_known = headers
        .get(IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = Response::new(if is_known { Body::empty() } else { Body::from(text) });
    if is_known {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let own = answer.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // The browser keeps it, and asks each time whether it is still the same: another version has other files.
    own.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        own.insert(ETAG, tag);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_small_and_name_no_other_host() {
        let all = MODULES.iter().map(|(_, text)| *text).chain(STYLES).chain([SHELL]);
        let size: usize = all.clone().map(str::len).sum();
        assert!(size < 300_000, "{size}");
        for text in all {
            let hosts = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!hosts.contains("http://") && !hosts.contains("https://"));
            assert!(
                !text.contains("innerHTML")
                    && !text.contains("insertAdjacentHTML")
                    && !text.contains("eval(")
            );
        }
        for word in [" style=", " onclick=", "<script>"] {
            assert!(!SHELL.contains(word), "{word}");
        }
    }
}
