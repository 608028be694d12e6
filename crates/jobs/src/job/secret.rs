//! Which values are secrets, judged by their names.

/// Words that make a name that of a secret.
const WORDS: [&str; 20] = [
    "APIKEY",
    "APIKEYS",
    "AUTH",
    "CREDENTIAL",
    "CREDENTIALS",
    "KEY",
    "KEYS",
    "PASS",
    "PASSCODE",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PASSWORDS",
    "PAT",
    "PWD",
    "SAS",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];

/// Whether a value looks like a secret: by a word of its name (`DB_PASS`, `gh-pat`, `apiKey`), or by a password in a URI. The
/// words of a name end at every character that is no letter, and where a small letter is followed by a large one.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    // The shell's variable of the working folder.
    let is_folder = name == "PWD";
    let mut named = words(name).into_iter();
    let is_named = !is_folder && named.any(|word| WORDS.contains(&word.as_str()));
    is_named || name.to_ascii_uppercase().contains("CONNECTION_STRING") || has_password(value)
}

/// The words of a name, in large letters.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        if !letter.is_alphabetic() {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|before| letters[before]);
        let is_after = |test: fn(char) -> bool| before.is_some_and(test);
        let is_last_large = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        // `apiKey`, and `HFToken`, whose T begins a word.
        if letter.is_uppercase()
            && (is_after(char::is_lowercase) || is_after(char::is_uppercase) && is_last_large)
        {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(letter.to_uppercase());
        }
    }
    words
}

/// Whether a text has a URI with a user and a password.
fn has_password(text: &str) -> bool {
    let mut rests = text.split("://").skip(1);
    rests.any(|rest| {
        let authority = rest
            .split(|c: char| c == '/' || c.is_whitespace())
            .next()
            .unwrap_or(rest);
        authority
            .split_once('@')
            .is_some_and(|(user, _)| user.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_their_words() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "HF_TOKEN",
            "SAS",
            "db-password",
            "DB_PASS",
            "DB_PWD",
            "GH_PAT",
            "APIKEY",
            "apiKey",
            "APIKey",
            "WANDB_API_KEY",
            "wandbToken",
            "HFToken",
            "KEY2",
            "x.auth",
            "AZURE_STORAGE_CONNECTION_STRING",
        ] {
            assert!(is_secret(name, "x"), "{name}");
        }
        for name in [
            "PATH",
            "PWD",
            "OLDPWD",
            "MONKEY",
            "keyboard",
            "keypoints",
            "passthrough",
            "pattern",
            "compass",
            "author",
            "TOKENIZERS_PARALLELISM",
            "SASSY",
            "bypassNorm",
            "OMP_NUM_THREADS",
            "",
        ] {
            assert!(!is_secret(name, "x"), "{name}");
        }
    }

    #[test]
    fn a_password_in_a_uri_is_a_secret() {
        for text in ["postgres://me:s3cret@host/db", "see http://a/b or http://me:pw@c"] {
            assert!(is_secret("x", text), "{text}");
        }
        for text in [
            "http://127.0.0.1:9000/a:b@c",
            "s3://bucket/a@b",
            "http://me@host",
            "a:b@c",
        ] {
            assert!(!is_secret("x", text), "{text}");
        }
    }
}
