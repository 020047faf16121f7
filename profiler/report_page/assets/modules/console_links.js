// Addresses in the AWS console. profiler/forwarder/run_links.py has the same; a browser test compares both.

const REGION = /^[a-z]{2,4}(-[a-z]+)+-\d{1,2}$/;

const CONSOLES = [
  ["cn-", "console.amazonaws.cn"],
  ["us-gov-", "console.amazonaws-us-gov.com"],
  ["eusc-", "console.amazonaws-eusc.eu"],
];

function consoleOf(region) {
  if (!region || !REGION.test(region) || /-iso[a-z]?-/.test(region)) return undefined;
  const [, domain] = CONSOLES.find(([prefix]) => region.startsWith(prefix)) ?? ["", "console.aws.amazon.com"];
  return `https://${region}.${domain}`;
}

const encodedOnce = (text) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);

const encodedTwice = (text) => encodedOnce(encodedOnce(text)).replaceAll("%", "$");

export function logStreamLink({ region, logGroup, logStream }) {
  const base = consoleOf(region);
  if (!base || !logGroup || !logStream) return undefined;
  const place = `log-group/${encodedTwice(logGroup)}/log-events/${encodedTwice(logStream)}`;
  return `${base}/cloudwatch/home?region=${region}#logsV2:log-groups/${place}`;
}

export function taskLink({ region, cluster, id }) {
  const base = consoleOf(region);
  if (!base || !cluster || !id) return undefined;
  return `${base}/ecs/v2/clusters/${encodedOnce(cluster)}/tasks/${encodedOnce(id)}/configuration?region=${region}`;
}
