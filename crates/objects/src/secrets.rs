//! Masks secrets in messages.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Shorter values are not masked: a password of one letter would remove that letter from every word.
const SHORTEST: usize = 8;

/// The characters that forms escape
/// (<https://url.spec.whatwg.org/#application-x-www-form-urlencoded-percent-encode-set>), and `*`, which some
/// programs escape too.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
/// The characters that addresses escape (RFC 3986, all except the unreserved ones).
const ADDRESS: &AsciiSet = &FORM.remove(b'~');

/// The secrets that a bucket was opened with.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Adds a value in every form that a message may contain: as it is, and percent-encoded.
    pub fn add(&mut self, value: Option<String>) {
        let Some(value) = value else { return };
        let decoded = percent_decode_str(&value).decode_utf8_lossy().into_owned();
        let [form, address] = [FORM, ADDRESS].map(|set| utf8_percent_encode(&decoded, set).to_string());
        let lower = address
            .split('%')
            .enumerate()
            .map(|(at, part)| match (at, part.get(..2)) {
                (1.., Some(hex)) => format!("%{}{}", hex.to_lowercase(), &part[2..]),
                _ => part.to_owned(),
            });
        let lower = lower.collect::<String>();
        for form in [value, decoded, form, address, lower] {
            if form.chars().count() >= SHORTEST && !self.0.contains(&form) {
                self.0.push(form);
            }
        }
        // A secret that is a part of another one is masked after it.
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// Adds Azure's shared access signature: the query of an address, in which `sig` is the secret.
    pub fn add_signature(&mut self, query: Option<String>) {
        let Some(query) = query else { return };
        let decoded = percent_decode_str(&query).decode_utf8_lossy().into_owned();
        for pairs in [&query, &decoded] {
            let values = pairs.trim_start_matches('?').split('&');
            let sig = values.filter_map(|pair| pair.trim().strip_prefix("sig=")).next();
            self.add(sig.map(str::to_owned));
        }
        self.add(Some(query));
    }

    /// Adds the key of one of Google's service accounts: a JSON text, in which `private_key` is the secret.
    pub fn add_service_account(&mut self, json: Option<String>) {
        let Some(json) = json else { return };
        let key = serde_json::from_str::<serde_json::Value>(&json).ok();
        let key = key.and_then(|key| Some(key.get("private_key")?.as_str()?.to_owned()));
        // A message may quote any line of it.
        for line in key.iter().flat_map(|key| key.lines()) {
            if !line.starts_with("-----") {
                self.add(Some(line.to_owned()));
            }
        }
        self.add(key);
        self.add(Some(json));
    }

    /// A text with every secret in it replaced by `***`.
    pub fn hide(&self, text: &str) -> String {
        let hidden = |text: String, secret: &String| text.replace(secret.as_str(), "***");
        self.0.iter().fold(text.to_owned(), hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hidden_as_they_are_and_as_addresses_have_them() {
        let mut secrets = Secrets::default();
        secrets.add(Some("tok+en/12=".to_owned()));
        assert_eq!(secrets.hide("a tok+en/12= b"), "a *** b");
        assert_eq!(secrets.hide("?t=tok%2Ben%2F12%3D&x"), "?t=***&x");
        secrets.add(Some("Q~a-b_c.d+e".to_owned()));
        for text in ["Q~a-b_c.d+e", "Q~a-b_c.d%2Be", "Q%7Ea-b_c.d%2Be", "Q~a-b_c.d%2be"] {
            assert_eq!(secrets.hide(text), "***");
        }
        secrets.add(None);
    }

    #[test]
    fn what_is_too_short_to_be_a_secret_takes_no_letters_out_of_words() {
        let mut secrets = Secrets::default();
        for short in ["", "b", "minio", "secret7"] {
            secrets.add(Some(short.to_owned()));
        }
        let text = "the bucket of minio has no secret7";
        assert_eq!(secrets.hide(text), text);
        secrets.add(Some("password".to_owned()));
        assert_eq!(secrets.hide("password"), "***");
    }

    #[test]
    fn azures_signature_is_hidden_whichever_way_it_was_given() {
        for given in [
            "?sv=2024-11-04&se=2026&sig=Zm9v%2Bbar%2F8%3D&sp=r",
            "sv=2024-11-04&se=2026&sig=Zm9v+bar/8=&sp=r",
        ] {
            let mut secrets = Secrets::default();
            secrets.add_signature(Some(given.to_owned()));
            for text in [
                "https://a/b?sv=2024-11-04&sig=Zm9v%2Bbar%2F8%3D&comp=list",
                "Zm9v+bar/8=",
                given,
            ] {
                let hidden = secrets.hide(text);
                assert!(hidden.contains("***"), "{hidden}");
                assert!(!hidden.contains("Zm9v"), "{hidden}");
            }
        }
    }

    #[test]
    fn googles_key_is_hidden_in_parts_too() {
        let mut secrets = Secrets::default();
        let json = r#"{"client_email": "a@b", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nsecondline12\n-----END PRIVATE KEY-----\n"}"#;
        secrets.add_service_account(Some(json.to_owned()));
        assert_eq!(secrets.hide("bad key MIIEvQIBADAN here"), "bad key *** here");
        assert_eq!(secrets.hide(json), "***");
        // A text that is not JSON is a secret as a whole.
        secrets.add_service_account(Some("not json but secret".to_owned()));
        assert_eq!(
            secrets.hide("expected value: not json but secret"),
            "expected value: ***"
        );
    }
}
