//! Which values are secrets, judged by their names and by forms that only secrets have.

/// Words that make a name that of a secret.
const WORDS: [&str; 24] = [
    "APIKEY",
    "APIKEYS",
    "AUTH",
    "BEARER",
    "COOKIE",
    "CREDENTIAL",
    "CREDENTIALS",
    "JWT",
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
    "SIGNATURE",
    "TOKEN",
    "TOKENS",
];

/// How tokens of well-known services begin, and how many letters, digits, `_` and `-` follow at least.
const TOKENS: [(&str, usize); 13] = [
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("hf_", 30),
    ("sk-", 32),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("AIza", 35),
    // A JSON web token: {" in Base64.
    ("eyJ", 30),
];

/// What stands before a secret within a longer text, in small letters.
const BEFORE: [&str; 5] = [
    "password=",
    "passwd=",
    "secret=",
    "x-amz-signature=",
    "x-amz-security-token=",
];

/// Whether a value looks like a secret: by a word of its name (`DB_PASS`, `gh-pat`, `apiKey`), or by itself: a password in a URI, a
/// private key, a token as AWS, GitHub, GitLab, Hugging Face, OpenAI, Slack and Google make them, a JSON web token, a signed address.
/// The words of a name end at every character that is no letter, and where a small letter is followed by a large one.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    // The shell's variable of the working folder.
    let is_folder = name == "PWD";
    let mut named = words(name).into_iter();
    let is_named = !is_folder && named.any(|word| WORDS.contains(&word.as_str()));
    is_named
        || name.to_ascii_uppercase().contains("CONNECTION_STRING")
        || has_password(value)
        || has_token(value)
}

/// Whether a text has something that only secrets look like.
fn has_token(text: &str) -> bool {
    let of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let mut words = text.split(|c: char| !of_token(c));
    let is_token = |word: &str| {
        let is_of = |&(start, least): &(&str, usize)| {
            word.strip_prefix(start).is_some_and(|rest| rest.len() >= least)
        };
        TOKENS.iter().any(is_of)
    };
    let small = text.to_ascii_lowercase();
    let is_after = |before: &&str| {
        small
            .split_once(*before)
            .is_some_and(|(_, rest)| rest.starts_with(|c: char| !c.is_whitespace()))
    };
    words.any(is_token) || text.contains("PRIVATE KEY-----") || BEFORE.iter().any(is_after)
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
    fn tokens_are_known_by_their_form() {
        for text in [
            "AKIAIOSFODNN7EXAMPLE",
            "--key AKIAIOSFODNN7EXAMPLE,x",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
            "-----BEGIN RSA PRIVATE KEY-----\nMII",
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=0123abcd",
            "host=db Password=x user=me",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.x",
        ] {
            assert!(is_secret("x", text), "{text}");
        }
        for text in [
            "AKIA",
            "MAKIAIOSFODNN7EXAMPLES",
            "hf_model",
            "sk-learn",
            "skip-the-first-hundred-thousand-of-all-images",
            "s3://bucket/eyJ/x",
            "password= ",
            "secretless",
            "resnet50",
        ] {
            assert!(!is_secret("x", text), "{text}");
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
