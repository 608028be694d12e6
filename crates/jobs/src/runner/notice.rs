//! Whether this machine will be taken away soon, according to EC2's instance metadata service.
//!
//! This is version 2 of the service: a token is requested by PUT, and sent with every request.
//! `latest/meta-data/spot/instance-action` does not exist (404) until about two minutes before the machine is
//! stopped or terminated. On machines outside of EC2 the service does not answer; that is no error.

use std::time::Duration;

use ureq::Agent;

/// Time between two requests.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// A service that does not answer within this time is taken as absent.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The lifetime of a token: the longest that the service grants.
const TOKEN_SECONDS: &str = "21600";

/// The service of one machine.
pub(crate) struct Metadata {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

impl Metadata {
    /// The service at `AWS_EC2_METADATA_SERVICE_ENDPOINT`, or at its usual address; `None` if
    /// `AWS_EC2_METADATA_DISABLED` is `true`.
    pub fn new(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            // The service is local to this machine: no proxy.
            .proxy(None)
            .build();
        let endpoint = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").filter(|endpoint| !endpoint.is_empty());
        let endpoint = endpoint.unwrap_or_else(|| "http://169.254.169.254".to_owned());
        Some(Self {
            agent: config.into(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: None,
        })
    }

    /// The announced interruption, if there is one.
    pub fn notice(&mut self) -> Option<String> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => self.token.insert(self.new_token()?).clone(),
        };
        let asked = self
            .agent
            .get(format!("{}/latest/meta-data/spot/instance-action", self.endpoint));
        let mut answer = asked.header("X-aws-ec2-metadata-token", token).call().ok()?;
        match answer.status().as_u16() {
            200 => answer.body_mut().read_to_string().ok(),
            // The token has expired: the next request gets a new one.
            401 => {
                self.token = None;
                None
            }
            _ => None,
        }
    }

    fn new_token(&self) -> Option<String> {
        let asked = self.agent.put(format!("{}/latest/api/token", self.endpoint));
        let asked = asked.header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS);
        let mut answer = asked.send_empty().ok()?;
        (answer.status().as_u16() == 200).then(|| answer.body_mut().read_to_string().ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// Serves these answers, one per connection, and returns the first lines and tokens of the requests.
    fn service(answers: Vec<(&'static str, &'static str)>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        let serve = move || {
            let mut asked = Vec::new();
            for (status, body) in answers {
                let (mut socket, _) = listener.accept().unwrap();
                let head = BufReader::new(&socket)
                    .lines()
                    .map(Result::unwrap)
                    .take_while(|line| !line.is_empty());
                let head: Vec<String> = head.filter(|line| !line.starts_with("host")).collect();
                let token = head
                    .iter()
                    .find(|line| line.to_ascii_lowercase().starts_with("x-aws-ec2-metadata-token"));
                asked.push(format!("{} {}", head[0], token.cloned().unwrap_or_default()));
                let length = body.len();
                write!(
                    socket,
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                )
                .unwrap();
            }
            asked
        };
        (endpoint, std::thread::spawn(serve))
    }

    #[test]
    fn a_notice_is_asked_for_with_a_token() {
        let (endpoint, served) = service(vec![
            ("200 OK", "one"),
            ("404 Not Found", "no notice"),
            ("401 Unauthorized", ""),
            ("200 OK", "two"),
            ("200 OK", "{\"action\": \"terminate\"}"),
        ]);
        let variable = |name: &str| (name == "AWS_EC2_METADATA_SERVICE_ENDPOINT").then(|| endpoint.clone());
        let mut metadata = Metadata::new(&variable).unwrap();
        assert_eq!(metadata.notice(), None);
        assert_eq!(metadata.notice(), None, "the token had run out");
        assert_eq!(metadata.notice().as_deref(), Some("{\"action\": \"terminate\"}"));
        let asked: Vec<String> = served
            .join()
            .unwrap()
            .iter()
            .map(|line| line.to_ascii_lowercase())
            .collect();
        let put = "put /latest/api/token http/1.1 x-aws-ec2-metadata-token-ttl-seconds: 21600";
        let get = "get /latest/meta-data/spot/instance-action http/1.1 x-aws-ec2-metadata-token: ";
        assert_eq!(
            asked,
            [
                put,
                &format!("{get}one"),
                &format!("{get}one"),
                put,
                &format!("{get}two")
            ]
        );
        assert_eq!(metadata.notice(), None, "nobody answers any more");
    }

    #[test]
    fn it_can_be_switched_off() {
        assert!(
            Metadata::new(&|name| (name == "AWS_EC2_METADATA_DISABLED").then(|| "TRUE".to_owned())).is_none()
        );
    }
}
